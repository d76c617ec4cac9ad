#include "strata/run/sign_check.h"

#include <string>

#include "strata/base/error_source.h"
#include "strata/optim/one_bit_adam.h"

namespace strata {
namespace {

constexpr ErrorSource kSignErrors{"run.recipe"};

bool has_rounds(const OptimizerOptions& optimizer) {
  return optimizer.kind == OptimizerKind::kZeroOneAdam && optimizer.local_most > 1;
}

// Settings with which replicas send signs; every rank then keeps whole weights.
std::string without_shards(const Recipe& recipe) {
  const MeshOptions& mesh = recipe.mesh;
  std::string fix = "set mesh.zero=0";
  if (mesh.zero.shard_ranks != 0) fix += " and mesh.shard_ranks=0";
  if (mesh.zero.traffic.weights != TrafficFormat::kFull) fix += " and mesh.traffic.weights=full";
  if (has_rounds(recipe.optimizer) && mesh.axes[Axis::kContext] > 1)
    fix += " and train.optimizer.local_most=1";
  return fix;
}

// If all replicas share one set of shards, they would sum fp32 gradients in every step.
void check_groups(const Recipe& recipe, const PlaceOf& where) {
  const MeshOptions& mesh = recipe.mesh;
  const int ranks = mesh.axes.weight_ranks();
  if (ranks == 1 || mesh.zero.shards(ranks) < ranks) return;
  const int most =
      most_in_group(ranks, has_rounds(recipe.optimizer) ? mesh.axes[Axis::kContext] : 1);
  throw kSignErrors.user(
      where("mesh.shard_ranks"),
      std::string("mesh.shard_ranks: ") + name_of(recipe.optimizer.kind) +
          " sends one bit a weight between groups of replicas that share shards, "
          "and here all replicas are one group",
      "mesh.shard_ranks: less than the " + std::to_string(ranks) + " replicas, or mesh.zero: 0",
      "mesh.shard_ranks: " + std::to_string(mesh.zero.shard_ranks) +
          (mesh.zero.shard_ranks == 0 ? " (all)" : ""),
      most > 1 ? "set mesh.shard_ranks=" + std::to_string(most) : without_shards(recipe));
}

// Ranks of cp compute parts of one sample, so they need equal weights in every step. Those of one
// shard group have them, and ranks of cp are adjacent.
void check_rounds(const Recipe& recipe, const PlaceOf& where) {
  const int parts = recipe.mesh.axes[Axis::kContext];
  if (!has_rounds(recipe.optimizer) ||
      recipe.mesh.zero.shards(recipe.mesh.axes.weight_ranks()) % parts == 0)
    return;
  throw kSignErrors.user(
      where("mesh.cp"),
      "mesh.cp: with zero-one-adam ranks with parts of one sample cannot move apart",
      "mesh.cp: 1, train.optimizer.local_most: 1, or mesh.zero with a multiple of "
      "mesh.cp as mesh.shard_ranks",
      "mesh.cp: " + std::to_string(parts), "set train.optimizer.local_most=1");
}

}  // namespace

void check_signs(const Recipe& recipe, const PlaceOf& where) {
  if (!moves_by_signs(recipe.optimizer.kind)) return;
  check_groups(recipe, where);
  check_rounds(recipe, where);
}

}  // namespace strata
