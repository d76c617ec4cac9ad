#include "strata/run/traffic_check.h"

#include <bit>
#include <string>

#include "strata/base/error_source.h"
#include "strata/optim/one_bit_adam.h"

namespace strata {
namespace {

constexpr ErrorSource kTrafficErrors{"run.recipe"};

void check_weights(const Recipe& recipe, const PlaceOf& where) {
  const MeshOptions& mesh = recipe.mesh;
  const std::string name = name_of(mesh.zero.traffic.weights);
  if (recipe.outer.is_on())
    throw kTrafficErrors.user(
        where("mesh.traffic.weights"),
        "mesh.traffic.weights: replicas with train.outer_steps keep whole weights", "full", name,
        "set mesh.traffic.weights=full, or train.outer_steps.every=0");
  if (mesh.automatic)
    throw kTrafficErrors.user(
        where("mesh.traffic.weights"),
        "mesh.traffic.weights: mesh.auto chooses whether ranks gather weights", "full", name,
        "set mesh.auto=false and mesh.zero=3, or mesh.traffic.weights=full");
  if (mesh.zero.stage < 3)
    throw kTrafficErrors.user(
        where("mesh.traffic.weights"),
        "mesh.traffic.weights: ranks gather weights in every step with mesh.zero 3 only",
        "full, or mesh.zero: 3", name + " and mesh.zero: " + std::to_string(mesh.zero.stage),
        "set mesh.zero=3, or mesh.traffic.weights=full");
}

void check_gradients(const Recipe& recipe, const PlaceOf& where) {
  const std::string name = name_of(recipe.mesh.zero.traffic.gradients);
  if (recipe.outer.is_on())
    throw kTrafficErrors.user(
        where("mesh.traffic.gradients"),
        "mesh.traffic.gradients: replicas with train.outer_steps send no gradients", "full", name,
        "set mesh.traffic.gradients=full, or train.outer_steps.every=0");
  if (moves_by_signs(recipe.optimizer.kind))
    throw kTrafficErrors.user(
        where("mesh.traffic.gradients"),
        std::string("mesh.traffic.gradients: ") + name_of(recipe.optimizer.kind) +
            " sends one bit a weight instead of gradients",
        "full", name, "set mesh.traffic.gradients=full, or train.optimizer.kind=adamw");
}

}  // namespace

void check_traffic(const Recipe& recipe, const PlaceOf& where) {
  const Traffic& traffic = recipe.mesh.zero.traffic;
  if (traffic.is_full()) {
    if (traffic.block != Traffic().block)
      throw kTrafficErrors.user(where("mesh.traffic.block"),
                                "mesh.traffic.block: ranks send no integers, which have blocks",
                                "gradients or weights as int8 or int4", "mesh.traffic: full",
                                "set mesh.traffic.gradients=int8, or mesh.traffic.block=128");
    return;
  }
  if (!std::has_single_bit(static_cast<std::uint64_t>(traffic.block)))
    throw kTrafficErrors.user(
        where("mesh.traffic.block"), "mesh.traffic.block: this is not a power of two",
        "a power of two, such as 128", std::to_string(traffic.block),
        "set mesh.traffic.block=" +
            std::to_string(std::bit_floor(static_cast<std::uint64_t>(traffic.block))));
  const std::string field =
      traffic.gradients != TrafficFormat::kFull ? "mesh.traffic.gradients" : "mesh.traffic.weights";
  if (recipe.device_kind() != DeviceKind::kCpu)
    throw kTrafficErrors.user(where(field), field + ": integers have not been written for GPUs",
                              "ranks on the CPU", "mesh.device: cuda",
                              "set mesh.traffic.gradients=full and mesh.traffic.weights=full");
  if (traffic.weights != TrafficFormat::kFull) check_weights(recipe, where);
  if (traffic.gradients != TrafficFormat::kFull) check_gradients(recipe, where);
}

}  // namespace strata
