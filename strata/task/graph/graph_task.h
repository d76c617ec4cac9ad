/// Learns with a model that torch.export wrote, on arrays of samples.
///
/// Fields  model and data (graph_fields.h).
/// Errors  as task.h, ExportedModel and GraphData; UserError `[task.graph]`: a precision or a mesh
///         that an exported model cannot have.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strata/task/graph/graph_batch.h"
#include "strata/task/graph/graph_fields.h"
#include "strata/task/task.h"

namespace strata {

class GraphTask final : public Task {
 public:
  void describe(OptionSet& set) override;
  void check(const Recipe& recipe, const FieldPlace& place) const override;

  std::string title() const override;
  Sequential model(const Recipe& recipe, TensorSplit split) const override;
  std::vector<TensorSpec> batch_inputs(std::int64_t samples) const override;
  MeshLimits mesh_limits(const Recipe& recipe) const override;
  CheckpointModel checkpoint_model() const override;

  int evaluation_shapes(const Recipe& recipe) const override;
  bool has_uncounted_memory() const override;
  std::vector<std::string> validation_metrics() const override;
  MiniBatch mini_batch(std::vector<at::Tensor> tensors) const override;
  std::unique_ptr<TaskData> open(const Recipe& recipe, const std::string& resume) const override;
  std::unique_ptr<TaskRun> start(const Recipe& recipe, const StepPlan& steps, const TaskData& data,
                                 const TaskStart& start) const override;
  void initialise(Trainer& trainer) const override;
  std::string first_weights(const Recipe& recipe) const override;
  std::string data_source() const override;

 private:
  struct Loaded;
  const Loaded& loaded() const;  // the model of the file, read once
  GraphSamples samples() const;

  GraphModelFields model_;
  GraphDataFields data_;
  mutable std::mutex loading_;
  mutable std::shared_ptr<const Loaded> loaded_;
};

}  // namespace strata
