#include "strata/checkpoint/loader.h"

#include <filesystem>

#include "strata/base/errors.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/reader.h"

namespace strata {
namespace {

// The files use the names of the model that they were written for; it has the same weights as
// `model`.
CheckpointReader open_same_model(const std::string& path, const CheckpointModel& model,
                                 SameModel what) {
  CheckpointReader checkpoint = CheckpointReader::open(path);
  require_same_model(checkpoint.model(), model, what, checkpoint.folder());
  return checkpoint;
}

TrainingPosition position_of(const CheckpointReader& checkpoint) {
  if (!checkpoint.is_pretrained())
    return {checkpoint.manifest().step, checkpoint.manifest().samples_seen};
  throw UserError({.operation = "checkpoint.open",
                   .where = checkpoint.folder(),
                   .what = "another program's model holds weights but no state of a run",
                   .expected = "a manifest.json",
                   .got = "none",
                   .fix = "begin with its weights: --from " + checkpoint.folder()});
}

}  // namespace

StateLoader::StateLoader(const std::string& path, const CheckpointModel& model, SameModel what)
    : model_(model),
      checkpoint_(std::make_unique<CheckpointReader>(open_same_model(path, model, what))) {}

StateLoader::~StateLoader() = default;

TrainingPosition StateLoader::position() const { return position_of(*checkpoint_); }

namespace {

// Files hold no split weights, and only the host reads them.
void read(const CheckpointReader& checkpoint, const DecoderOptions* names,
          const NamedState& state) {
  NamedState read = state;
  const bool in_place =
      !state.local.defined() || (state.local.is_cpu() && !state.remainder.defined());
  if (!in_place) read.local = state.values();
  checkpoint.read_runs(read, file_tensors(names, state));
  if (!in_place) state.assign(read.local);
}

}  // namespace

void StateLoader::read_weights(const std::vector<NamedState>& weights) const {
  for (const NamedState& weight : weights) read(*checkpoint_, model_.names(), weight);
}

void StateLoader::read_slots(const std::vector<NamedState>& slots) const {
  for (const NamedState& slot : slots) read(*checkpoint_, nullptr, slot);
}

TrainingPosition load_states(const std::string& path, const CheckpointModel& model,
                             const std::vector<NamedState>& weights,
                             const std::vector<NamedState>& slots) {
  const StateLoader loader(path, model, SameModel::kAll);
  const TrainingPosition position = loader.position();
  loader.read_weights(weights);
  loader.read_slots(slots);
  return position;
}

void load_weights(const std::string& path, const CheckpointModel& model,
                  const std::vector<NamedState>& weights) {
  StateLoader(path, model, SameModel::kWeights).read_weights(weights);
}

DecoderOptions model_options_of(const std::string& path) {
  return CheckpointReader::open(path).decoder();
}

TrainingPosition position_at(const std::string& path, const CheckpointModel& model) {
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
