#include "strata/tier/layer_state.h"

#include <ATen/ops/zeros.h>

#include "strata/device/account.h"
#include "strata/device/pinned.h"

namespace strata {
namespace {

FlatBuffer zeroed(std::int64_t numel, at::ScalarType dtype, Device device) {
  FlatBuffer buffer(numel, dtype, device);
  buffer.install(at::zeros({numel}, buffer.tensor().options()));
  return buffer;
}

// Host memory that a device copies from and to while it computes.
FlatBuffer pinned(std::int64_t numel, at::ScalarType dtype, Device device, MemoryAccount* account) {
  FlatBuffer buffer(numel, dtype, Device{});
  const auto bytes = static_cast<std::int64_t>(buffer.tensor().nbytes());
  buffer.install(pinned_bytes(bytes, device, account).view(dtype));
  return buffer;
}

// Matrices become integers. Vectors, such as biases and the gains of norms, and running statistics
// are few.
std::optional<BlockCode> code_of(const LayerLayout& layout, TrafficFormat format,
                                 std::int64_t block) {
  if (format == TrafficFormat::kFull) return std::nullopt;
  return BlockCode(format, block, matrices_of(layout));
}

}  // namespace

ShardPlacement shard_placement(const StepPlan& plan, int layer, const LayerLayout& layout,
                               int shard_rank) {
  const LayerShards shards = plan.shards()[layer];
  const TierLayout& tiers = plan.decisions().tiers;
  const bool at_once = is_updated_at_once(tiers, shards, layer, tied_layers(plan.dataflow()));
  Traffic traffic = plan.shards().traffic;
  if (plan.shards().replicas == 1) traffic.gradients = TrafficFormat::kFull;
  if (!shards.coded_weights) traffic.weights = TrafficFormat::kFull;
  return {.shard = cut({0, layout.own_numel}, plan.shards().shards)[shard_rank],
          .whole_weights = !shards.weights && !tiers[layer].fetches_weights(),
          .whole_gradients = !shards.gradients && !tiers[layer].offloads_gradients(),
          .gathered_weights = shards.weights,
          .traffic = traffic,
          .borrows_gradients = at_once && tiers.gradient_buffers > 0,
          .tiers = tiers[layer]};
}

Home home_of(const ShardPlacement& placement, std::int64_t own_numel, StateKind kind) {
  if (kind == StateKind::kWeights && placement.gathered_weights) return Home::kPeers;
  if (!placement.tiers.updates_on_host()) return Home::kDevice;
  if (placement.on_disk(kind)) return Home::kDisk;
  if (kind == StateKind::kGradients) return Home::kOffloaded;
  if (kind != StateKind::kWeights) return Home::kHost;
  // Each replica updates a part of whole weights, and the ranks gather them after the update.
  if (own_numel == 0 || placement.shard.size() < own_numel) return Home::kDevice;
  return placement.on_disk(StateKind::kWeightShard) ? Home::kDiskCopy : Home::kHostCopy;
}

LayerState::LayerState(int layer, const LayerLayout& layout, const ShardPlacement& placement)
    : layer(layer),
      layout(&layout),
      placement(placement),
      gradient_code(code_of(layout, placement.traffic.gradients, placement.traffic.block)),
      weight_code(code_of(layout, placement.traffic.weights, placement.traffic.block)) {
  for (int kind = 0; kind < kNumStateKinds; ++kind)
    homes[kind] = home_of(placement, layout.own_numel, static_cast<StateKind>(kind));
}

void LayerState::make_buffers(const Stream& compute, MemoryAccount* host) {
  const Device device = compute.device();
  const bool on_host = placement.tiers.updates_on_host();
  const auto shard = [&](StateKind kind, at::ScalarType dtype) {
    if (placement.on_disk(kind)) return FlatBuffer(placement.shard.size(), dtype, Device{});
    const bool travels = kind != StateKind::kOptimizer && placement.shard.size() > 0;
    if (on_host && travels && compute.queue())
      return pinned(placement.shard.size(), dtype, device, host);
    const AccountScope account(on_host ? host : current_memory_account(), DeviceKind::kCpu);
    return zeroed(placement.shard.size(), dtype, on_host ? Device{} : device);
  };
  weights = placement.whole_weights ? zeroed(layout->own_numel, placement.dtype, device)
                                    : FlatBuffer(layout->own_numel, placement.dtype, device);
  if (!placement.updates_in_weights())
    weight_shard = shard(StateKind::kWeightShard, placement.dtype);
  if (!placement.trains) return;
  gradients = placement.whole_gradients ? zeroed(layout->total_numel, at::kFloat, device)
                                        : FlatBuffer(layout->total_numel, at::kFloat, device);
  if (placement.borrows_gradients)
    gradient_shard = FlatBuffer(placement.shard.size(), at::kFloat, Device{});
  else if (!placement.updates_from_gradients())
    gradient_shard = shard(StateKind::kGradientShard, at::kFloat);
  if (placement.dtype != at::kFloat)
    master = shard(StateKind::kOptimizer, placement.splits_weights() ? at::kShort : at::kFloat);
  for (int slot = 0; slot < placement.optimizer_slots; ++slot)
    slots.push_back(shard(StateKind::kOptimizer, at::kFloat));
}

at::Tensor LayerState::preset_gradient(std::size_t weight) const {
  const WeightSpec& spec = layout->specs[weight];
  if (spec.statistic == Statistic::kNone) return view_of(gradients, weight);
  const UnchargedScope uncharged;  // numbers of the step
  return first_gradient(spec, gradients.tensor().options());
}

at::Tensor LayerState::view_of(const FlatBuffer& flat, std::size_t weight) const {
  const WeightPlacement& place = layout->placements[weight];
  return flat.tensor().narrow(0, place.offset, place.numel).view(place.shape);
}

}  // namespace strata
