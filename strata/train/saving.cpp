#include "strata/train/saving.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include <chrono>
#include <numeric>
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/models/hugging_face.h"
#include "strata/train/checkpoint.h"
#include "strata/train/checkpoint_copy.h"
#include "strata/train/named_state.h"
#include "strata/train/saving_agreement.h"
#include "strata/train/saving_assembly.h"

namespace strata {

namespace fs = std::filesystem;
namespace {

Group with_all(const Group& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.subgroup(ranks, "checkpoint");
}

// Charged for the copies of all ranks; never freed, for tensors may outlive everything.
MemoryAccount& copies_account() {
  static auto& account = *new MemoryAccount("checkpoint");
  return account;
}

// Which of the files that the ranks with something to write make is this rank's.
struct Numbered {
  int file = 0;
  int files = 0;
};

Numbered number(Group& world, bool writes) {
  std::vector<double> writers(static_cast<std::size_t>(world.size()), 0.0);
  const auto self = writers.begin() + world.rank();
  *self = writes ? 1 : 0;
  world.all_reduce(writers);
  return {static_cast<int>(std::accumulate(writers.begin(), self, 0.0)),
          static_cast<int>(std::accumulate(writers.begin(), writers.end(), 0.0))};
}

}  // namespace

// What this rank writes; whole tensors under their names in the files.
struct CheckpointSaver::Work {
  std::int64_t steps_done = 0;
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> slots;
};

CheckpointSaver::CheckpointSaver(const Recipe& recipe, const Group& world, const Group& stage,
                                 int threads_per_rank)
    : recipe_(recipe),
      threads_per_rank_(threads_per_rank),
      stage_(with_all(stage)),
      world_(with_all(world)) {}

CheckpointSaver::~CheckpointSaver() {
  if (under_way_.valid()) under_way_.wait();
}

void CheckpointSaver::save(std::int64_t steps_done, const std::vector<NamedState>& weights,
                           const std::vector<NamedState>& slots) {
  if (under_way_.valid()) complete_ = under_way_.get();
  std::vector<NamedState> states = weights;
  states.insert(states.end(), slots.begin(), slots.end());
  Work work{.steps_done = steps_done, .weights = {}, .slots = {}};
  {
    const AccountScope scope(copies_account());
    const std::vector<at::Tensor> whole = assemble(stage_, states);
    for (std::size_t i = 0; i < whole.size(); ++i) {
      if (!whole[i].defined()) continue;
      if (i >= weights.size()) {
        work.slots.push_back({states[i].name, whole[i]});
        continue;
      }
      for (const FileTensor& part : file_tensors(&recipe_.model, states[i]))
        work.weights.push_back({part.name, part_of(whole[i], part)});
    }
  }
  under_way_ =
      std::async(std::launch::async, [this, work = std::move(work)] { return write(work); });
}

namespace {

// What makes the checkpoint complete for whoever reads text with it; none for bytes.
std::map<std::string, std::string> tokenizer_files(const std::string& tokenizer) {
  const fs::path given(tokenizer);
  const fs::path folder = fs::is_directory(given) ? given : given.parent_path();
  std::map<std::string, std::string> files;
  if (!fs::exists(given)) return files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    std::ifstream file(folder / name, std::ios::binary);
    if (file) files[name] = std::string(std::istreambuf_iterator<char>(file), {});
  }
  return files;
}

}  // namespace

std::string CheckpointSaver::write(const Work& work) {
  const Numbered model = number(world_, !work.weights.empty());
  const Numbered optimizer = number(world_, !work.slots.empty());
  const std::string& folder = recipe_.train.checkpoint_folder;
  const CheckpointWriter writer(folder, work.steps_done,
                                {.model = model.files, .optimizer = optimizer.files});
  const bool first = world_.rank() == 0;
  std::string complete;
  try {
    attempt(world_, [&] {
      if (first) writer.prepare();
    });
    attempt(world_, [&] {
      if (!work.weights.empty()) writer.write_model(model.file, work.weights);
      if (!work.slots.empty()) writer.write_optimizer(optimizer.file, work.slots);
    });
    attempt(world_, [&] {
      if (!first) return;
      complete = writer.commit({.samples_seen = work.steps_done * recipe_.train.mini_batch,
                                .threads_per_rank = threads_per_rank_,
                                .strata_version = STRATA_VERSION,
                                .recipe = recipe_.text},
                               hugging_face_config(recipe_.model),
                               tokenizer_files(recipe_.data.tokenizer));
      prune_checkpoints(folder, recipe_.train.keep_checkpoints);
    });
  } catch (...) {
    if (first) writer.discard();
    throw;
  }
  return first ? complete : "";
}

std::string CheckpointSaver::poll() {
  if (under_way_.valid() &&
      under_way_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    complete_ = under_way_.get();
  return std::exchange(complete_, "");
}

std::string CheckpointSaver::wait() {
  if (under_way_.valid()) complete_ = under_way_.get();
  return std::exchange(complete_, "");
}

}  // namespace strata
