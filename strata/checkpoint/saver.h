/// Saves the states of a run on any mesh to checkpoints, in the background.
///
/// Ranks of one pipeline stage share the work: each assembles some of the stage's states from the
/// parts of their owners and writes them whole, so that the folder always is a Hugging Face folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/executor.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/writer.h"
#include "strata/comm/group.h"

namespace strata {

/// What all checkpoints of a run have in common.
struct CheckpointOptions {
  std::string folder;     ///< empty: no checkpoints
  std::int64_t keep = 2;  ///< the newest checkpoints to keep; 0: all
  CheckpointModel model = DecoderOptions();
  std::string tokenizer;  ///< bytes, none, or the place of its files, which are copied
  std::string recipe;     ///< effective, YAML: for people
  std::map<std::string, std::string> texts = {};  ///< additional files, by name
  int threads_per_rank = 1;
};

/// The progress of a run.
struct TrainingPosition {
  std::int64_t steps_done = 0;
  std::int64_t samples_seen = 0;  ///< of the training data, over all epochs
  friend bool operator==(const TrainingPosition&, const TrainingPosition&) = default;
};

/// One object per rank; all ranks call save() at the same steps.
///
///     CheckpointSaver saver(options, groups.world, stage);
///     saver.save(position, trainer.owned_weights(), trainer.owned_slots());
///     ...                      // train on; the states were copied
///     saver.wait();            // at the end of the run
///
/// Threads  one rank's thread; an executor writes in parallel.
/// Cost     save(): a copy of the stage's states, divided among its ranks, charged to no rank's
///          account; it lives until the bytes are on disk. With a device that works asynchronously
///          save() first copies the rank's own states to pinned memory; a rank that has its whole
///          stage does not wait for that copy.
/// Errors   UserError at once: a folder that cannot be made or written to, or that another run
///          saves to. SystemError: disk full; the same on every rank, at the next call.
class CheckpointSaver {
 public:
  /// Collective. `stage`: the ranks that hold the same stage (dp x tp). Makes subgroups of both
  /// groups. Locks the folder while the object lives.
  CheckpointSaver(CheckpointOptions options, const Group& world, const Group& stage)
      : CheckpointSaver(std::move(options), world, stage, Stream::compute(world.device())) {}
  /// `compute`: the stream that changes the states.
  CheckpointSaver(CheckpointOptions options, const Group& world, const Group& stage,
                  Stream compute);
  ~CheckpointSaver() = default;  ///< waits; drops an error
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective; waits for the previous save. All ranks of a stage pass the same states in the same
  /// order, each with the runs that it owns: every element of a state occurs once over all ranks of
  /// the world. `slots`: everything that is not a weight. The states may change after this returns.
  void save(TrainingPosition position, const std::vector<NamedState>& weights,
            const std::vector<NamedState>& slots);

  /// Saves part by part, on the calling thread, for states that do not fit in memory at once. A
  /// part is a file of weights and one of slots; it is copied and written before the next part is
  /// requested. `parts`: what each part of the stage has.
  struct Part {
    std::vector<NamedState> weights;
    std::vector<NamedState> slots;
  };
  struct PartKinds {
    bool weights = false;
    bool slots = false;
  };
  void save_parts(TrainingPosition position, const std::vector<PartKinds>& parts,
                  const std::function<Part(int part)>& part);

  /// The folder of a save that has completed since the last call, else ""; never waits.
  std::string poll();

  /// Waits for the pending save; returns its folder, or "" if there is none.
  std::string wait();

 private:
  struct Work;
  Work assembled(const Part& part, std::optional<int> writer = std::nullopt);
  void collect();
  std::string write(const Work& work);
  std::string commit(const CheckpointWriter& writer, TrainingPosition position,
                     const std::function<std::vector<std::string>()>& write);

  CheckpointOptions options_;
  Stream compute_;
  Group stage_;
  Group world_;                               // used by the background threads only
  std::unique_ptr<CheckpointLock> lock_;      // on rank 0
  std::map<std::string, std::string> texts_;  // on rank 0, by name
  std::string complete_;
  std::string written_;  // the folder of the last completed save
  Completion under_way_;
  Executor saves_{{.name = "checkpoint"}};  // last: its tasks use the members above
};

}  // namespace strata
