// There are few moves, in one order, so what leaves the device for a budget also leaves it for
// every smaller one: a plan that fits keeps fitting with more memory.
#include "strata/plan/search/tier_choice.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr Tier kTiers[] = {Tier::kHost, Tier::kDisk};

bool runs_layers_again(RecomputeMode mode) {
  return mode == RecomputeMode::kFull || mode == RecomputeMode::kAuto;
}

// The same placements with inputs offloaded, if they may or must be: after everything else, but
// before the disk.
std::vector<TierPlacement> with_activations(std::vector<TierPlacement> placements,
                                            const MemoryOptions& memory) {
  if (memory.activations == TierChoice::kDevice || !runs_layers_again(memory.recompute))
    return placements;
  std::vector<TierPlacement> all;
  for (const bool on_disk : {false, true}) {
    for (const bool away : {false, true}) {
      if (!away && memory.activations == TierChoice::kHost) continue;
      for (TierPlacement placement : placements) {
        if ((placement.tiers.states == Tier::kDisk) != on_disk) continue;
        if (away) placement.tiers.activations = Tier::kHost;
        all.push_back(placement);
      }
    }
  }
  return all;
}

bool allows(TierChoice choice, Tier tier) {
  switch (choice) {
    case TierChoice::kAuto:
      return true;
    case TierChoice::kDevice:
      return tier == Tier::kDevice;
    case TierChoice::kHost:
      return tier == Tier::kHost;
    case TierChoice::kDisk:
      return tier == Tier::kDisk;
  }
  return false;
}

}  // namespace

std::string placement_text(const TierPlacement& placement) {
  const LayerTiers& tiers = placement.tiers;
  std::string text;
  for (const Tier tier : kTiers) {
    std::vector<std::string> kinds;
    if (tiers.weights == tier) kinds.emplace_back("weights");
    if (tiers.gradients == tier) kinds.emplace_back("gradients");
    if (tiers.states == tier) kinds.emplace_back("states");
    if (tiers.activations == tier) kinds.emplace_back("activations");
    if (kinds.empty()) continue;
    if (!text.empty()) text += ", ";
    for (std::size_t i = 0; i < kinds.size(); ++i)
      text += (i == 0 ? "" : i + 1 == kinds.size() ? " and " : ", ") + kinds[i];
    text += std::string(" on the ") + name_of(tier);
  }
  return text;
}

TierPlacement placement_of_layers(TierPlacement requested, const TierLayout& layers) {
  const bool on_disk = std::ranges::any_of(
      layers.layers, [](const LayerTiers& tiers) { return tiers.gradients == Tier::kDisk; });
  if (requested.tiers.gradients == Tier::kDisk && !on_disk) requested.tiers.gradients = Tier::kHost;
  return requested;
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
  const bool states_stay = memory.states != TierChoice::kDisk && memory.states != TierChoice::kAuto;
  const auto needs_disk = [&](const std::string& field, TierChoice choice) {
    if (choice != TierChoice::kDisk || !states_stay) return;
    const std::string states = name_of(memory.states);
    refuse(field, field.substr(field.find('.') + 1) + " on disk need the optimizer's states there",
           "memory.states on the disk, too", "disk, with memory.states=" + states,
           "set memory.states=disk, or " + field + "=" + states);
  };
  needs_disk("memory.weights", memory.weights);
  needs_disk("memory.gradients", memory.gradients);
  const bool on_disk = memory.weights == TierChoice::kDisk || memory.states == TierChoice::kDisk ||
                       memory.gradients == TierChoice::kDisk;
  if (on_disk && memory.disk.path.empty())
    refuse("memory.disk.path", "something is to live on a disk, and no folder is named",
           "a folder on a disk", "none", "set memory.disk.path to one");
  if (memory.activations == TierChoice::kHost && !runs_layers_again(memory.recompute))
    refuse("memory.activations", "only layers that run again keep nothing but their inputs",
           "memory.recompute=full or auto",
           std::string("host, with memory.recompute=") + name_of(memory.recompute),
           "set memory.recompute=full, or memory.activations=device");
  const bool stay = memory.weights == TierChoice::kDevice || memory.states == TierChoice::kDevice;
  const bool sharded = mesh.automatic || (mesh.zero.stage == 3 && mesh.axes.weight_ranks() > 1);
  if (memory.window > 0 && stay && !sharded) {
    refuse("memory.window", "a window of weights that never leave the device",
           "weights that live on the host, or sharded ones (mesh.zero 3)",
           std::to_string(memory.window) + ", with weights on the device",
           "set memory.window=0, or memory.weights=host and memory.states=host");
  }
}

std::vector<TierPlacement> tier_placements(const MemoryOptions& memory, bool trains) {
  const Tier gradients = memory.gradients == TierChoice::kDevice ? Tier::kDevice : Tier::kHost;
  std::vector<LayerTiers> all = {
      {}, {Tier::kDevice, gradients, Tier::kHost}, {Tier::kHost, gradients, Tier::kHost}};
  if (!memory.disk.path.empty()) {
    constexpr Tier kAll[] = {Tier::kDevice, Tier::kHost, Tier::kDisk};
    for (const Tier weights : kAll) all.push_back({weights, gradients, Tier::kDisk});
    for (const Tier weights : kAll)
      if (memory.gradients == TierChoice::kDisk || weights == Tier::kDisk)
        all.push_back({weights, Tier::kDisk, Tier::kDisk});
  }
  std::vector<TierPlacement> allowed;
  for (const LayerTiers& tiers : all) {
    if (allows(memory.weights, tiers.weights) && allows(memory.gradients, tiers.gradients) &&
        allows(memory.states, tiers.states))
      allowed.push_back({.tiers = tiers, .window = static_cast<int>(memory.window)});
    if (!trains) return {{.tiers = all[0], .window = static_cast<int>(memory.window)}};
  }
  return with_activations(std::move(allowed), memory);
}

TierLayout tier_layout(const TierPlacement& placement, int num_layers, bool updates_at_once) {
  TierLayout layout;
  if (placement.window > 0) layout.window = placement.window;
  if (!placement.leaves_device()) return layout;
  layout.updates_at_once = updates_at_once;
  layout.gradient_buffers = placement.gradient_buffers;
  layout.layers.assign(num_layers, placement.tiers);
  if (placement.offloaded.empty()) return layout;
  for (int layer = 0; layer < num_layers; ++layer)
    if (!placement.offloaded.has(layer)) layout.layers[layer].activations = Tier::kDevice;
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
