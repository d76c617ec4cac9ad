#include "strata/checkpoint/loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <filesystem>

#include "strata/base/errors.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/reader.h"
#include "strata/device/account.h"
#include "strata/device/device.h"

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

constexpr std::int64_t kPiece = 1 << 20;  // elements

// Whether the part has only what layers of 16 bits compute with, not the rest of the fp32 weight.
bool is_rounded(const NamedState& state) {
  return state.local.defined() && !state.remainder.defined() &&
         (state.local.scalar_type() == at::kBFloat16 || state.local.scalar_type() == at::kHalf);
}

// Rounds as training does: bf16 weights are those of the split (optim/master_weights.h). Reads
// pieces, because the rank's budget has no room for fp32 weights.
void read_rounded(const CheckpointReader& checkpoint, const NamedState& state,
                  const std::vector<FileTensor>& files) {
  const UnchargedScope uncharged;
  const at::Tensor fp32 = at::empty({kPiece}, host_options(at::kFloat));
  const at::Tensor rest = at::empty({kPiece}, host_options(at::kShort));
  for (const Run& run : state.runs)
    for (std::int64_t done = 0; done < run.numel; done += kPiece) {
      const std::int64_t count = std::min(kPiece, run.numel - done);
      NamedState piece{.name = state.name,
                       .shape = state.shape,
                       .local = fp32.narrow(0, 0, count),
                       .runs = {{.local = 0, .global = run.global + done, .numel = count}}};
      checkpoint.read_runs(piece, files);
      NamedState part = state;
      part.local = state.local.narrow(0, run.local + done, count);
      if (part.local.scalar_type() == at::kBFloat16) part.remainder = rest.narrow(0, 0, count);
      part.assign(piece.local);
    }
}

// Files hold no split weights, and only the host reads them.
void read(const CheckpointReader& checkpoint, const FileNames& names, const NamedState& state) {
  const std::vector<FileTensor> files = file_tensors(names, state);
  if (is_rounded(state)) return read_rounded(checkpoint, state, files);
  NamedState read = state;
  const bool in_place =
      !state.local.defined() || (state.local.is_cpu() && !state.remainder.defined());
  if (!in_place) read.local = state.values();
  checkpoint.read_runs(read, files);
  if (!in_place) state.assign(read.local);
}

}  // namespace

void StateLoader::read_weights(const std::vector<NamedState>& weights) const {
  for (const NamedState& weight : weights) read(*checkpoint_, model_.names(), weight);
}

namespace {

// The name of one replica's state.
std::string of_replica(const std::string& name, int replica) {
  return name + "." + std::to_string(replica);
}

// The mean over the replicas of the run that saved.
void read_mean(const CheckpointReader& checkpoint, NamedState state, int replicas,
               const std::string& name) {
  if (state.runs.empty()) return;
  const UnchargedScope uncharged;
  const NamedState mean = state;
  at::Tensor sum = at::zeros({state.local.numel()}, host_options(at::kFloat));
  state.local = at::zeros_like(sum);  // also between the runs
  state.remainder.reset();
  for (int replica = 0; replica < replicas; ++replica) {
    state.name = of_replica(name, replica);
    read(checkpoint, {}, state);
    sum.add_(state.local);
  }
  mean.assign(sum.div_(replicas));
}

// Runs differ in whether each replica has the state for itself, and in the number of replicas. A
// replica of another number begins with the mean, and every replica with a state that all had.
void read_slot(const CheckpointReader& checkpoint, const NamedState& slot) {
  const std::string name =
      slot.replicas == 0 ? slot.name : slot.name.substr(0, slot.name.rfind('.'));
  int saved = 0;
  while (checkpoint.contains(of_replica(name, saved))) ++saved;
  if (saved != slot.replicas && saved > 0) return read_mean(checkpoint, slot, saved, name);
  NamedState state = slot;
  if (saved == 0 && checkpoint.contains(name)) state.name = name;
  if (slot.may_be_missing && !checkpoint.contains(state.name)) return;
  read(checkpoint, {}, state);
}

}  // namespace

void StateLoader::read_slots(const std::vector<NamedState>& slots) const {
  for (const NamedState& slot : slots) read_slot(*checkpoint_, slot);
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
