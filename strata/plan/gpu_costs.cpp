#include "strata/plan/gpu_costs.h"

#include <algorithm>

namespace strata {
namespace {

constexpr std::int64_t kAllocationBlock = 512;
constexpr std::int64_t kTile = 128;  // attention's kernels work on whole tiles of tokens

// Of one transformer block, counted in its operators: norms, products, attention, activation, additions. A
// layer that has fewer is over-estimated, and is none that a step waits for.
constexpr double kForwardLaunches = 12, kBackwardLaunches = 24;

std::int64_t rounded_up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

}  // namespace

std::int64_t attention_workspace_bytes(const AttentionShape& attention,
                                       std::int64_t multiprocessors) {
  const std::int64_t blocks = attention.samples * attention.heads;
  if (blocks == 0) return 0;
  const std::int64_t groups = std::max<std::int64_t>(1, (multiprocessors + blocks - 1) / blocks);
  return groups * blocks * rounded_up(attention.tokens, kTile) *
         rounded_up(attention.head_width, 32) * static_cast<std::int64_t>(sizeof(float));
}

CostTable with_gpu_costs(CostTable costs, const MachineProfile& machine,
                         const AttentionShape& attention) {
  if (machine.device.kind != MachineKind::kCuda) return costs;
  costs.allocation_block = kAllocationBlock;
  costs.workspace_bytes = machine.device.context.count + machine.device.workspace.count +
                          attention_workspace_bytes(attention, machine.device.multiprocessors);
  for (LayerCost& layer : costs.layers) {
    layer.forward_seconds =
        std::max(layer.forward_seconds, kForwardLaunches * machine.device.launch);
    layer.backward_seconds =
        std::max(layer.backward_seconds, kBackwardLaunches * machine.device.launch);
  }
  return costs;
}

AxisRates gpu_axis_rates(const MachineProfile& machine, const Mesh& mesh,
                         const AxisRates& otherwise) {
  if (machine.device.kind != MachineKind::kCuda) return otherwise;
  // Ranks lie in order on the machines, tp fastest: an axis' line spans the axes inside it, and its own.
  const auto rate = [&](int span, double assumed) {
    const bool inside = machine.peers.devices == 0 || span <= machine.peers.devices;
    const double known = static_cast<double>(inside ? machine.peers.bandwidth.count
                                                    : machine.network.bandwidth.count);
    return known > 0 ? known : assumed;
  };
  return {.pp = rate(mesh.size(), otherwise.pp),
          .dp = rate(mesh.tp * mesh.dp, otherwise.dp),
          .tp = rate(mesh.tp, otherwise.tp)};
}

}  // namespace strata
