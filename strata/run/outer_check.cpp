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

void check_outer(const Recipe& recipe, const PlaceOf& where) {
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
