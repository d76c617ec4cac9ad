// save() copies, and an executor's thread writes while training continues. That thread uses groups
// of its own, because a group belongs to one thread. A device copies its states itself. If a rank
// has its whole stage, the executor waits for the copies and assembles them. If ranks share a
// stage, their own threads exchange the parts, because the exchange may make streams wait, which no
// other thread may do while a stream is being recorded. All ranks do every step of a save, or none
// (run_on_all, gather); the same messages carry the files' digests to rank 0, which commits.
#include "strata/checkpoint/saver.h"

#include <map>
#include <numeric>
#include <utility>

#include "strata/base/errors.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/named_state.h"
#include "strata/comm/run_on_all.h"
#include "strata/device/account.h"
#include "strata/models/hugging_face.h"
#include "strata/pretrained/model_texts.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

Group with_all(const Group& group) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  Group all = group.subgroup(ranks, "checkpoint");
  all.count_alone();  // a run sends the same with and without checkpoints
  return all;
}

// The account of all ranks' copies; never freed, because tensors may outlive everything.
MemoryAccount& copies_account() {
  static auto& account = *new MemoryAccount("checkpoint");
  return account;
}

// The range of numbers of this rank's files among those of all ranks.
struct Numbered {
  int file = 0;  // this rank's first file
  int files = 0;
};

Numbered number(Group& world, int mine) {
  std::vector<double> writers(static_cast<std::size_t>(world.size()), 0.0);
  const auto self = writers.begin() + world.rank();
  *self = mine;
  world.all_reduce(writers);
  return {static_cast<int>(std::accumulate(writers.begin(), self, 0.0)),
          static_cast<int>(std::accumulate(writers.begin(), writers.end(), 0.0))};
}

// The tokenizer's files, so that a checkpoint can be used to read text; none for bytes.
std::map<std::string, std::string> tokenizer_files(const std::string& tokenizer) {
  std::map<std::string, std::string> files;
  if (tokenizer.empty() || tokenizer_kind(tokenizer) != TokenizerKind::kFile) return files;
  const auto texts =
      open_model_texts(tokenizer, {.operation = "checkpoint.save", .fix = "restore the file"});
  for (const char* name : {kTokenizerName, kTokenizerConfigName})
    if (texts->has(name)) files[name] = texts->text(name);
  return files;
}

}  // namespace

// What this rank writes: whole tensors under their names in the files.
struct CheckpointSaver::Work {
  TrainingPosition position;
  std::vector<NamedTensor> weights;
  std::vector<NamedTensor> slots;
};

CheckpointSaver::CheckpointSaver(CheckpointOptions options, const Group& world, const Group& stage,
                                 Stream compute)
    : options_(std::move(options)),
      compute_(std::move(compute)),
      stage_(with_all(stage)),
      world_(with_all(world)) {
  if (options_.folder.empty()) return;
  run_on_all(world_, [&] {
    if (world_.rank() != 0) return;
    lock_ = std::make_unique<CheckpointLock>(options_.folder);
    // Read now, because a resumed run may have it from a checkpoint that is removed later.
    texts_ = tokenizer_files(options_.tokenizer);
    texts_.insert(options_.texts.begin(), options_.texts.end());
  });
}

// Copies what this rank writes: all states if it is `writer`, or an even share.
CheckpointSaver::Work CheckpointSaver::assembled(const Part& part, std::optional<int> writer) {
  std::vector<NamedState> states = part.weights;
  states.insert(states.end(), part.slots.begin(), part.slots.end());
  Work work;
  const AccountScope scope(copies_account());
  const std::vector<at::Tensor> whole = assemble(
      stage_, states,
      writer ? std::vector<int>(states.size(), *writer) : assemblers(states, stage_.size()));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!whole[i].defined()) continue;
    if (i >= part.weights.size()) {
      work.slots.push_back({states[i].name, whole[i]});
      continue;
    }
    for (const FileTensor& tensor : file_tensors(options_.model.names(), states[i]))
      work.weights.push_back({tensor.name, part_of(whole[i], tensor)});
  }
  return work;
}

void CheckpointSaver::save(TrainingPosition position, const std::vector<NamedState>& weights,
                           const std::vector<NamedState>& slots) {
  STRATA_CHECK(!options_.folder.empty(), "checkpoint.save");
  collect();
  Part part{weights, slots};
  if (compute_.queue()) {
    HostStates copies;
    {
      const AccountScope scope(copies_account());
      std::vector<NamedState> states = weights;
      states.insert(states.end(), slots.begin(), slots.end());
      copies = copy_to_host(states, compute_);
    }
    const auto first_slot = copies.states.begin() + static_cast<std::ptrdiff_t>(weights.size());
    part = {{copies.states.begin(), first_slot}, {first_slot, copies.states.end()}};
    if (stage_.size() == 1) {
      under_way_ = saves_.submit(
          [this, position, part = std::move(part), copied = std::move(copies.copied)]() mutable {
            copied.wait();
            Work work = assembled(std::exchange(part, {}));
            work.position = position;
            written_ = write(work);
          });
      return;
    }
    copies.copied.wait();
  }
  Work work = assembled(part);
  part = {};
  work.position = position;
  under_way_ = saves_.submit([this, work = std::move(work)] { written_ = write(work); });
}

// The ranks of a stage write its parts in turn. An error ends the rank, because the other ranks of
// its stage wait for its share of the next part.
void CheckpointSaver::save_parts(TrainingPosition position, const std::vector<PartKinds>& parts,
                                 const std::function<Part(int part)>& part) {
  STRATA_CHECK(!options_.folder.empty(), "checkpoint.save");
  collect();
  const auto writer_of = [&](std::size_t i) {
    return static_cast<int>(i % static_cast<std::size_t>(stage_.size()));
  };
  int models = 0, optimizers = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (writer_of(i) != stage_.rank()) continue;
    models += parts[i].weights ? 1 : 0;
    optimizers += parts[i].slots ? 1 : 0;
  }
  Numbered model = number(world_, models), optimizer = number(world_, optimizers);
  const CheckpointWriter writer(options_.folder, position.steps_done,
                                {.model = model.files, .optimizer = optimizer.files});
  complete_ = commit(writer, position, [&] {
    std::vector<WrittenFile> mine;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].weights && !parts[i].slots) continue;
      const Work work = assembled(part(static_cast<int>(i)), writer_of(i));
      STRATA_CHECK(work.weights.empty() || parts[i].weights, "checkpoint.save");
      STRATA_CHECK(work.slots.empty() || parts[i].slots, "checkpoint.save");
      if (!work.weights.empty()) mine.push_back(writer.write_model(model.file++, work.weights));
      if (!work.slots.empty()) mine.push_back(writer.write_optimizer(optimizer.file++, work.slots));
    }
    return gather(world_, [&] { return encode(mine); });
  });
}

std::string CheckpointSaver::write(const Work& work) {
  const Numbered model = number(world_, work.weights.empty() ? 0 : 1);
  const Numbered optimizer = number(world_, work.slots.empty() ? 0 : 1);
  const CheckpointWriter writer(options_.folder, work.position.steps_done,
                                {.model = model.files, .optimizer = optimizer.files});
  return commit(writer, work.position, [&] {
    return gather(world_, [&] {
      std::vector<WrittenFile> mine;
      if (!work.weights.empty()) mine.push_back(writer.write_model(model.file, work.weights));
      if (!work.slots.empty()) mine.push_back(writer.write_optimizer(optimizer.file, work.slots));
      return encode(mine);
    });
  });
}

// `write` makes the files; on rank 0 it returns the files of all ranks.
std::string CheckpointSaver::commit(const CheckpointWriter& writer, TrainingPosition position,
                                    const std::function<std::vector<std::string>()>& write) {
  const bool first = world_.rank() == 0;
  std::string complete;
  try {
    run_on_all(world_, [&] {
      if (first) writer.prepare();
    });
    const std::vector<std::string> written = write();
    run_on_all(world_, [&] {
      if (!first) return;
      std::vector<WrittenFile> all;
      for (const std::string& text : written)
        for (WrittenFile& file : decode_written_files(text)) all.push_back(std::move(file));
      complete = writer.commit({.samples_seen = position.samples_seen,
                                .threads_per_rank = options_.threads_per_rank,
                                .strata_version = STRATA_VERSION,
                                .recipe = options_.recipe,
                                .model = options_.model.decoder,
                                .network = options_.model.network,
                                .tokenizer = options_.tokenizer},
                               all,
                               options_.model.decoder ? hugging_face_config(*options_.model.decoder)
                                                      : options_.model.network,
                               texts_);
      prune_checkpoints(options_.folder, options_.keep);
    });
  } catch (...) {
    if (first) writer.discard();
    throw;
  }
  return complete;
}

void CheckpointSaver::collect() {
  if (!under_way_.source()) return;
  std::exchange(under_way_, {}).wait();
  complete_ = std::exchange(written_, "");
}

std::string CheckpointSaver::poll() {
  if (under_way_.ready()) collect();
  return std::exchange(complete_, "");
}

std::string CheckpointSaver::wait() {
  collect();
  return std::exchange(complete_, "");
}

}  // namespace strata
