#include "strata/checkpoint/loader.h"

#include <filesystem>

#include "strata/base/errors.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/reader.h"

namespace strata {
namespace {

// The names in the files are those of the model that they were written for; it has the same weights
// as `model` here.
CheckpointReader open_same_model(const std::string& path, const DecoderOptions& model,
                                 SameModel what) {
  CheckpointReader checkpoint = CheckpointReader::open(path);
  require_same_model(checkpoint.model(), model, what, checkpoint.folder());
  return checkpoint;
}

void read_weights(const CheckpointReader& checkpoint, const DecoderOptions& model,
                  const std::vector<NamedState>& weights) {
  for (const NamedState& weight : weights) {
    NamedState fp32 = weight;  // files have no halves
    if (weight.remainder.defined()) fp32.local = weight.values();
    checkpoint.read_runs(fp32, file_tensors(&model, weight));
    if (weight.remainder.defined()) weight.assign(fp32.local);
  }
}

TrainingPosition position_of(const CheckpointReader& checkpoint) {
  if (!checkpoint.is_pretrained())
    return {checkpoint.manifest().step, checkpoint.manifest().samples_seen};
  throw UserError({.operation = "checkpoint.open",
                   .where = checkpoint.folder(),
                   .what = "another program's folder holds weights but no state of a run",
                   .expected = "a manifest.json",
                   .got = "none",
                   .fix = "begin with its weights: --from " + checkpoint.folder()});
}

}  // namespace

TrainingPosition load_states(const std::string& path, const DecoderOptions& model,
                             const std::vector<NamedState>& weights,
                             const std::vector<NamedState>& slots) {
  const CheckpointReader checkpoint = open_same_model(path, model, SameModel::kAll);
  const TrainingPosition position = position_of(checkpoint);
  read_weights(checkpoint, model, weights);
  for (const NamedState& slot : slots) checkpoint.read_runs(slot, file_tensors(nullptr, slot));
  return position;
}

void load_weights(const std::string& path, const DecoderOptions& model,
                  const std::vector<NamedState>& weights) {
  read_weights(open_same_model(path, model, SameModel::kWeights), model, weights);
}

DecoderOptions model_options_of(const std::string& path) {
  return CheckpointReader::open(path).model();
}

TrainingPosition position_at(const std::string& path, const DecoderOptions& model) {
  if (path.empty()) return {};
  return position_of(open_same_model(path, model, SameModel::kAll));
}

void require_no_later_checkpoint(const std::string& folder, std::int64_t steps_done) {
  const std::vector<std::string> checkpoints =
      folder.empty() ? std::vector<std::string>() : list_checkpoints(folder);
  if (checkpoints.empty()) return;
  const std::string& latest = checkpoints.back();
  if (*step_of_folder_name(std::filesystem::path(latest).filename()) <= steps_done) return;
  throw UserError(
      {.operation = "checkpoint.save",
       .where = folder,
       .what = "the folder holds later steps of another run",
       .expected = "none after step " + std::to_string(steps_done),
       .got = latest,
       .fix = "pass --resume " + folder + ", or set train.checkpoint_folder to a new one"});
}

}  // namespace strata
