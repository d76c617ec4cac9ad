/// Writes a trainer's states to a checkpoint and reads them back, under any mesh.
#pragma once

#include <string>

#include "strata/train/recipe.h"
#include "strata/train/trainer.h"

namespace strata {

/// Collective. Every rank writes its own shard; rank 0 completes the checkpoint and gets its
/// folder.
std::string save_trainer(Trainer& trainer, const Recipe& recipe, Group& group,
                         int threads_per_rank);

/// Reads this rank's weights, states and step count, whatever mesh wrote them. `path`: a checkpoint
/// or the folder that holds several.
void load_trainer(Trainer& trainer, const std::string& path);

/// Weights only.
void load_weights(Trainer& trainer, const std::string& path);

/// Refuses to train from `steps_done` on where the recipe's folder holds later steps of another
/// run: the newest would not be this run's.
void require_no_later_checkpoint(const Recipe& recipe, std::int64_t steps_done);

/// Steps that the checkpoint at `path` has done; 0 for an empty path.
std::int64_t steps_done_at(const std::string& path);

}  // namespace strata
