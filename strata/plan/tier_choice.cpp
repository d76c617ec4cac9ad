// Moves are few and in one order, so that what leaves the device for a budget leaves it for every
// smaller one: a plan that fits keeps fitting with more memory.
#include "strata/plan/tier_choice.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

Tier tier_of(bool host) { return host ? Tier::kHost : Tier::kDevice; }

TierPlacement placement_of(bool weights, bool gradients, bool states, std::int64_t window) {
  return {.tiers = {tier_of(weights), tier_of(gradients), tier_of(states)},
          .window = static_cast<int>(window)};
}

bool allows(TierChoice choice, bool host) {
  return choice == TierChoice::kAuto || (choice == TierChoice::kHost) == host;
}

}  // namespace

std::string placement_text(const TierPlacement& placement) {
  const LayerTiers& tiers = placement.tiers;
  if (!tiers.updates_on_host()) return "";
  std::string kinds = tiers.fetches_weights() ? "weights" : "";
  if (tiers.offloads_gradients()) kinds += kinds.empty() ? "gradients" : ", gradients";
  return kinds + (kinds.empty() ? "states on the host" : " and states on the host");
}

void check_memory(const MemoryOptions& memory, const MeshOptions& mesh, const PlaceOf& place_of) {
  const auto refuse = [&](const std::string& field, const std::string& what,
                          const std::string& expected, const std::string& got,
                          const std::string& fix) {
    throw UserError({.operation = "plan.memory",
                     .where = place_of ? place_of(field) : field,
                     .what = field + ": " + what,
                     .expected = expected,
                     .got = got,
                     .fix = fix});
  };
  const auto needs_states = [&](const std::string& field, TierChoice choice) {
    if (choice != TierChoice::kHost || memory.states != TierChoice::kDevice) return;
    refuse(field,
           "a layer is updated where its states live, and what it needs for that lives there",
           "memory.states on the host, too", "host, with memory.states=device",
           "set memory.states=host, or " + field + "=device");
  };
  needs_states("memory.weights", memory.weights);
  needs_states("memory.gradients", memory.gradients);
  const bool on_disk = memory.weights == TierChoice::kDisk || memory.states == TierChoice::kDisk;
  if (memory.weights == TierChoice::kDisk && memory.states != TierChoice::kDisk &&
      memory.states != TierChoice::kAuto)
    refuse("memory.weights",
           "weights on disk are updated there together with the optimizer's states",
           "memory.states on the disk, too",
           std::string("disk, with memory.states=") + name_of(memory.states),
           "set memory.states=disk, or memory.weights=" + std::string(name_of(memory.states)));
  if (on_disk && memory.disk.path.empty())
    refuse("memory.disk.path", "something is to live on a disk, and no folder is named",
           "a folder on a disk", "none", "set memory.disk.path to one");
  if (on_disk)
    refuse("memory.states", "no plan counts what lives on a disk yet", "auto, device or host",
           "disk", "set memory.states=host");
  const bool stay = memory.weights == TierChoice::kDevice || memory.states == TierChoice::kDevice;
  const bool sharded = mesh.automatic || (mesh.zero == 3 && mesh.dp > 1);
  if (memory.window > 0 && stay && !sharded) {
    refuse("memory.window", "a window of weights that never leave the device",
           "weights that live on the host, or sharded ones (mesh.zero 3)",
           std::to_string(memory.window) + ", with weights on the device",
           "set memory.window=0, or memory.weights=host and memory.states=host");
  }
}

std::vector<TierPlacement> tier_placements(const MemoryOptions& memory, bool trains) {
  const bool gradients = memory.gradients != TierChoice::kDevice;
  const TierPlacement all[] = {placement_of(false, false, false, memory.window),
                               placement_of(false, gradients, true, memory.window),
                               placement_of(true, gradients, true, memory.window)};
  if (!trains) return {all[0]};
  std::vector<TierPlacement> allowed;
  for (const TierPlacement& placement : all) {
    const LayerTiers& tiers = placement.tiers;
    if (allows(memory.weights, tiers.fetches_weights()) &&
        allows(memory.gradients, tiers.offloads_gradients()) &&
        allows(memory.states, tiers.updates_on_host()))
      allowed.push_back(placement);
  }
  return allowed;
}

TierLayout tier_layout(const TierPlacement& placement, int num_layers, bool updates_at_once) {
  TierLayout layout;
  if (placement.window > 0) layout.window = placement.window;
  if (!placement.leaves_device()) return layout;
  layout.updates_at_once = updates_at_once;
  layout.layers.assign(num_layers, placement.tiers);
  return layout;
}

int most_fetched(const TierLayout& layout, const std::vector<int>& rank_of_layer) {
  std::vector<int> fetched(1 + *std::max_element(rank_of_layer.begin(), rank_of_layer.end()));
  for (std::size_t layer = 0; layer < layout.layers.size(); ++layer)
    if (layout.layers[layer].fetches_weights()) ++fetched[rank_of_layer[layer]];
  return *std::max_element(fetched.begin(), fetched.end());
}

int largest_window(int most, const std::function<bool(int window)>& fits) {
  int low = 0, high = most;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace strata
