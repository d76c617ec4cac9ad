#include "strata/run/outer_check.h"

#include <string>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/optim/one_bit_adam.h"

namespace strata {
namespace {

// States of replicas that train apart differ, so that no replica can keep a part of another's.
void check_states(const Recipe& recipe, const PlaceOf& where) {
  constexpr ErrorSource kErrors{"run.recipe"};
  const MemoryOptions& memory = recipe.memory;
  if (recipe.mesh.zero.stage > 0)
    throw kErrors.user(where("mesh.zero"),
                       "train.outer_steps: replicas that train apart keep all states of their own",
                       "mesh.zero: 0", "mesh.zero: " + std::to_string(recipe.mesh.zero.stage),
                       "set mesh.zero=0, or train.outer_steps.every=0");
  for (const auto& [field, choice] :
       {std::pair("memory.weights", memory.weights),
        std::pair("memory.gradients", memory.gradients), std::pair("memory.states", memory.states)})
    if (choice == TierChoice::kHost || choice == TierChoice::kDisk)
      throw kErrors.user(where(field),
                         "train.outer_steps: an outer step moves weights and states on the device",
                         std::string(field) + ": device", name_of(choice),
                         "set " + std::string(field) + "=device, or train.outer_steps.every=0");
}

}  // namespace

// Ranks of cp compute parts of one sample, so they need equal weights in every step. Those of one
// shard group have them, and ranks of cp are adjacent.
void check_sign_rounds(const Recipe& recipe, const PlaceOf& where) {
  const OptimizerOptions& optimizer = recipe.optimizer;
  const int parts = recipe.mesh.axes[Axis::kContext];
  if (optimizer.kind != OptimizerKind::kZeroOneAdam || optimizer.local_most == 1 ||
      recipe.mesh.zero.shards(recipe.mesh.axes.weight_ranks()) % parts == 0)
    return;
  constexpr ErrorSource kErrors{"run.recipe"};
  throw kErrors.user(where("mesh.cp"),
                     "zero-one-adam: ranks with parts of one sample cannot move apart",
                     "mesh.cp: 1, train.optimizer.local_most: 1, or mesh.zero with a multiple of "
                     "mesh.cp as mesh.shard_ranks",
                     "mesh.cp: " + std::to_string(parts), "set train.optimizer.local_most=1");
}

void check_outer(const Recipe& recipe, const PlaceOf& where) {
  check_sign_rounds(recipe, where);
  if (!recipe.outer.is_on()) return;
  constexpr ErrorSource kErrors{"run.recipe"};
  if (recipe.mesh.automatic)
    throw kErrors.user(where("mesh.auto"),
                       "train.outer_steps: what replicas learn apart depends on their number",
                       "a number of replicas in mesh.dp", "mesh.auto: true",
                       "set mesh.auto=false and mesh.dp, or train.outer_steps.every=0");
  if (moves_by_signs(recipe.optimizer.kind))
    throw kErrors.user(where("train.optimizer.kind"),
                       "train.outer_steps: replicas that train apart send nothing in an inner step",
                       "an inner optimizer such as adamw, sgd or muon",
                       name_of(recipe.optimizer.kind),
                       "set train.optimizer.kind=adamw, or train.outer_steps.every=0");
  check_states(recipe, where);
}

}  // namespace strata
