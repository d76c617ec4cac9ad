/// Learns to continue text: a decoder, and windows of a file of tokens.
///
/// Fields  model (models/decoder_options.h), data (data/corpus.h).
/// Errors  as task.h.
#pragma once

#include "strata/data/corpus.h"
#include "strata/models/decoder_options.h"
#include "strata/task/task.h"
#include "strata/task/task_kind.h"

namespace strata {

class TextTask final : public Task {
 public:
  void describe(OptionSet& set) override;
  void check(const Recipe& recipe, const FieldPlace& place) const override;
  void take_model(const CheckpointReader& checkpoint) override;
  void take_model(const std::string& recipe) override;

  std::string title() const override;
  Sequential model(const Recipe& recipe, TensorSplit split) const override;
  std::vector<TensorSpec> batch_inputs(std::int64_t samples) const override;
  std::int64_t sample_tokens() const override { return model_.context; }
  MeshLimits mesh_limits(const Recipe& recipe) const override;
  CheckpointModel checkpoint_model() const override { return model_; }
  std::string tokenizer() const override { return data_.tokenizer; }

  int evaluation_shapes(const Recipe& recipe) const override;
  std::string depth_field() const override { return "model.layers"; }

  std::unique_ptr<TaskData> open(const Recipe& recipe, const std::string& resume) const override;
  std::string data_source() const override { return data_.train; }

  const DecoderOptions& model_options() const { return model_; }
  const DataOptions& data_options() const { return data_; }
  /// Names the text to train on, for a recipe that is only read to serve its model.
  void set_text(const std::string& path) { data_.train = path; }

 private:
  DecoderOptions model_;
  DataOptions data_;
};

TaskKind text_task_kind();

/// The text task of a recipe; null if it has another task.
const TextTask* text_task(const Recipe& recipe);

}  // namespace strata
