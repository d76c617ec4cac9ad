/// Reads the samples of an exported model from arrays: those for training, in an order that needs
/// no memory, and those for validation.
///
/// A sample may have other dimensions than the model's input, with as many elements in the same
/// order: an image [28, 28] is read as [1, 28, 28]. Integers become real numbers where the model
/// has them, times data.scale, plus data.shift; real numbers never become integers.
///
/// Threads  const, any thread.
/// Errors   UserError `[graph.data]`: arrays that do not fit the model or one another, a scale
///          without integers. As ArrayFile and graph_batch().
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "strata/base/sampler.h"
#include "strata/data/sample_array.h"
#include "strata/nn/graph/layer.h"
#include "strata/task/graph/graph_batch.h"
#include "strata/task/graph/graph_fields.h"
#include "strata/task/recipe.h"
#include "strata/task/task_data.h"

namespace strata {

class GraphData final : public TaskData {
 public:
  GraphData(const GraphDataFields& fields, GraphSamples samples, const TrainOptions& options);
  MiniBatch at(std::int64_t samples_seen) const override;
  std::int64_t seen_after(std::int64_t samples_seen) const override;
  bool is_read_ahead() const override { return true; }
  std::int64_t steps() const override { return options_.steps; }
  std::string unit() const override;
  std::int64_t training_samples() const override { return training_.count; }
  std::int64_t validation_samples() const override {
    return validated_samples(options_, validation_.count);
  }
  bool evaluates() const override { return validation_.count > 0; }
  std::vector<MiniBatch> validation() const override;

 private:
  /// Samples of arrays: inputs, then targets.
  struct Samples {
    std::vector<std::shared_ptr<const SampleArray>> arrays;
    std::int64_t first = 0, count = 0;
  };

  Samples open(const std::vector<std::string>& inputs, const std::string& targets,
               const char* inputs_field, const char* targets_field) const;
  MiniBatch batch(const Samples& from, const std::vector<std::int64_t>& numbers) const;
  at::Tensor converted(const at::Tensor& samples, const TensorSpec& spec, bool is_target) const;
  /// Refuses data.scale and data.shift that nothing uses, and augmentation of what is no image.
  void check_scale() const;
  void check_augmentation() const;

  GraphDataFields fields_;
  GraphSamples model_;
  TrainOptions options_;
  Samples training_, validation_;
  std::optional<Sampler> sampler_;
};

}  // namespace strata
