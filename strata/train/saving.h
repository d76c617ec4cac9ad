/// Saves the states of a run on any mesh to a checkpoint, and loads them under any other.
///
/// Ranks of one pipeline stage share the work: each assembles some of the stage's states from the
/// parts of their owners and writes them whole, so that the folder is one of Hugging Face at all
/// times. Loading, a rank reads the bytes of its own parts and no others.
#pragma once

#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "strata/comm/group.h"
#include "strata/models/decoder_options.h"
#include "strata/train/named_state.h"
#include "strata/train/recipe.h"

namespace strata {

/// Saves in the background, one object a rank; all ranks call save() at the same steps.
///
///     CheckpointSaver saver(recipe, groups.world, stage, threads_per_rank);
///     saver.save(trainer.steps_done(), trainer.owned_weights(), trainer.owned_slots());
///     ...                      // train on; the states were copied
///     saver.wait();            // at the end of the run
///
/// Threads  one rank's thread; the work of a save goes on in a thread of its own.
/// Cost     save(): a copy of the stage's states, divided among its ranks, charged to no rank's
///          account; it lives until the bytes are on the medium.
/// Errors   SystemError: disk full, no permission; the same on every rank, at the next call.
class CheckpointSaver {
 public:
  /// `stage`: the ranks that hold the same stage (dp x tp). Both groups get subgroups here.
  /// `recipe` must outlive the saver.
  CheckpointSaver(const Recipe& recipe, const Group& world, const Group& stage,
                  int threads_per_rank);
  ~CheckpointSaver();  ///< waits; an error is dropped
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective; waits for the save before. All ranks of a stage pass the same states in the same
  /// order, each with the runs that it owns: every element of a state occurs once over all ranks of
  /// the world. `slots`: everything that isn't a weight. The states may change when this returns.
  void save(std::int64_t steps_done, const std::vector<NamedState>& weights,
            const std::vector<NamedState>& slots);

  /// The folder of a save that has become complete since the last call, else ""; never waits.
  std::string poll();

  /// Waits for the save under way; its folder, or "" if there is none.
  std::string wait();

 private:
  struct Work;
  std::string write(const Work& work);

  const Recipe& recipe_;
  int threads_per_rank_;
  Group stage_;
  Group world_;  // the background threads' own
  std::string complete_;
  std::future<std::string> under_way_;
};

/// Reads this rank's parts (replicas and everything else that it needs) from the checkpoint at
/// `path`, or the latest of the folder; returns the steps that it has done.
std::int64_t load_states(const std::string& path, const std::vector<NamedState>& weights,
                         const std::vector<NamedState>& slots);

/// Weights only, from a checkpoint, a folder of checkpoints, or any Hugging Face folder
/// (config.json and safetensors of fp32, bf16 or fp16).
void load_weights(const std::string& path, const std::vector<NamedState>& weights);

/// The model whose weights `path` holds: a checkpoint, a folder of them or a Hugging Face folder.
DecoderOptions model_options_of(const std::string& path);

/// Refuses to train from `steps_done` on where the recipe's folder holds later steps of another
/// run: the newest would not be this run's.
void require_no_later_checkpoint(const Recipe& recipe, std::int64_t steps_done);

/// Steps that the checkpoint at `path` has done; 0 for an empty path.
std::int64_t steps_done_at(const std::string& path);

}  // namespace strata
