/// Saves the states of a run on any mesh to checkpoints, in the background.
///
/// Ranks of one pipeline stage share the work: each assembles some of the stage's states from the
/// parts of their owners and writes them whole, so that the folder is one of Hugging Face at all
/// times.
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

/// What checkpoints of a run have in common.
struct CheckpointOptions {
  std::string folder;     ///< empty: none are saved
  std::int64_t keep = 2;  ///< the newest; 0: all
  CheckpointModel model = DecoderOptions();
  std::string tokenizer;  ///< bytes, none, or where its files are: they are copied
  std::string recipe;     ///< effective, YAML: for people
  std::map<std::string, std::string> texts = {};  ///< further files, by name
  int threads_per_rank = 1;
};

/// Where a run is.
struct TrainingPosition {
  std::int64_t steps_done = 0;
  std::int64_t samples_seen = 0;  ///< of the training data, epoch after epoch
  friend bool operator==(const TrainingPosition&, const TrainingPosition&) = default;
};

/// One object a rank; all ranks call save() at the same steps.
///
///     CheckpointSaver saver(options, groups.world, stage);
///     saver.save(position, trainer.owned_weights(), trainer.owned_slots());
///     ...                      // train on; the states were copied
///     saver.wait();            // at the end of the run
///
/// Threads  one rank's thread; the work of a save goes on on an executor.
/// Cost     save(): a copy of the stage's states, divided among its ranks, charged to no rank's
///          account; it lives until the bytes are on the medium. Of a device that works behind the
///          rank's back save() first makes a copy of the rank's own in pinned memory; a rank that
///          has all of its stage does not wait for it.
/// Errors   UserError at once: a folder that can't be made or written to, or that another run saves
///          to. SystemError: disk full; the same on every rank, at the next call.
class CheckpointSaver {
 public:
  /// Collective. `stage`: the ranks that hold the same stage (dp x tp). Both groups get subgroups
  /// here. Keeps the folder locked as long as it lives.
  CheckpointSaver(CheckpointOptions options, const Group& world, const Group& stage)
      : CheckpointSaver(std::move(options), world, stage, Stream::compute(world.device())) {}
  /// `compute`: the stream in whose order the states change.
  CheckpointSaver(CheckpointOptions options, const Group& world, const Group& stage,
                  Stream compute);
  ~CheckpointSaver() = default;  ///< waits; an error is dropped
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective; waits for the save before. All ranks of a stage pass the same states in the same
  /// order, each with the runs that it owns: every element of a state occurs once over all ranks of
  /// the world. `slots`: everything that isn't a weight. The states may change when this returns.
  void save(TrainingPosition position, const std::vector<NamedState>& weights,
            const std::vector<NamedState>& slots);

  /// The same part by part, on the calling thread, for states of which nobody can hold all at once:
  /// a part is a file of weights and one of what isn't, and is copied and written before the next
  /// one is asked for. `parts`: which of the stage's have what.
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

  /// The folder of a save that has become complete since the last call, else ""; never waits.
  std::string poll();

  /// Waits for the save under way; its folder, or "" if there is none.
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
  Group world_;                               // the background threads' own
  std::unique_ptr<CheckpointLock> lock_;      // on rank 0
  std::map<std::string, std::string> texts_;  // on rank 0, by name
  std::string complete_;
  std::string written_;  // by the save under way, when it has ended
  Completion under_way_;
  Executor saves_{{.name = "checkpoint"}};  // last: its tasks use what is above
};

}  // namespace strata
