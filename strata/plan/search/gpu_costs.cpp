#include "strata/plan/search/gpu_costs.h"

#include <algorithm>
#include <set>
#include <utility>

namespace strata {
namespace {

constexpr std::int64_t kAllocationBlock = 512;
constexpr std::int64_t kTile = 128;  // attention kernels process whole tiles of tokens

// Defaults for a machine whose description lacks them. The launch time is what a host without a GPU
// took to run an operator with almost no work (docs/planning.md).
constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;
constexpr double kLaunch = 7e-6, kGraphLaunch = 10e-6;

// Shares of the rate of products: 306 and 166 of 798 TFLOP/s for heads of 128 and 8,192 tokens,
// causal. Backward has five products where forward has two.
constexpr double kAttentionForward = 0.38, kAttentionBackward = 0.21;
constexpr double kBackwardProducts = 2.5;

constexpr std::int64_t kChannelBytes = std::int64_t{12} << 20;  // per pair of ranks
constexpr std::int64_t kChannelsInside = 32, kChannelsAcross = 2;

template <typename T>
T known(T stated, T assumed) {
  return stated > 0 ? stated : assumed;
}

std::int64_t rounded_up(std::int64_t count, std::int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

// 0: neither measured nor described.
double product_rate(const MachineProfile& machine, int element_bytes) {
  return element_bytes == 2 && machine.device.bf16 > 0 ? machine.device.bf16 : machine.device.fp32;
}

// Bytes beyond what a block holds during the backward of its attention: the library's gradients and
// sums, packed ones, and copies of keys and values that heads share, less what its MLP has freed by
// then.
std::int64_t attention_peak_bytes(const AttentionShape& attention, std::int64_t sums,
                                  std::int64_t element_bytes, const LayerCost& layer) {
  const std::int64_t heads =
      attention.samples * attention.tokens * attention.heads * attention.head_width * element_bytes;
  return sums + (attention.shares_keys ? 5 : 3) * heads + layer.work.remade_bytes -
         layer.input_bytes;
}

void add_attention(LayerCost& layer, const CostTable& costs, const MachineProfile& machine) {
  const AttentionShape& attention = layer.work.attention;
  if (attention.heads == 0) return;
  const std::int64_t sums = attention_workspace_bytes(attention, machine.device.multiprocessors);
  // However short a micro-batch is, its groups fill the GPU.
  AttentionShape one = attention;
  one.samples = 1;
  const std::int64_t least = attention_workspace_bytes(one, machine.device.multiprocessors);
  const double tokens = static_cast<double>(attention.tokens);
  const double attended =
      static_cast<double>(attention.attended > 0 ? attention.attended : attention.tokens);
  const double flops = 2 * tokens * attended *
                       static_cast<double>(attention.samples * attention.heads) *
                       static_cast<double>(attention.head_width);
  const double rate = product_rate(machine, costs.weight_element_bytes);
  const double seconds = rate > 0 ? flops / rate : 0;
  if (layer.forward_seconds > 0) {
    layer.forward_seconds += seconds * (1 / kAttentionForward - 1);
    layer.backward_seconds += seconds * (kBackwardProducts / kAttentionBackward - 2);
    if (attention.runs_again) layer.backward_seconds += seconds * (1 / kAttentionForward - 1);
  }
  const std::int64_t peak =
      attention_peak_bytes(attention, sums, costs.weight_element_bytes, layer);
  layer.backward_transient_bytes = std::max(layer.backward_transient_bytes, peak);
  // The first half of a backward frees nothing before it ends.
  layer.input_transient_bytes =
      std::max(layer.input_transient_bytes, peak + layer.saved_bytes + layer.kept_bytes);
  layer.backward_fixed_bytes =
      std::max(layer.backward_fixed_bytes, std::min(least, layer.backward_transient_bytes));
}

// The norm reads a layer's gradient, and the next step starts by clearing it.
double gradient_seconds(const CostTable& costs, const LayerCost& layer, double bandwidth) {
  const double elements = static_cast<double>(layer.weight_bytes) / costs.weight_element_bytes;
  return bandwidth > 0 ? 2 * elements * sizeof(float) / bandwidth : 0;
}

void add_launches(LayerCost& layer) {
  layer.forward_launches = layer.work.forward_kernels;
  layer.backward_launches = layer.work.backward_kernels;
  layer.update_launches = layer.weight_bytes > 0 ? kUpdateLaunches : 0;
  layer.forward_seconds = std::max(layer.forward_seconds, layer.forward_launches * kShortestKernel);
  layer.backward_seconds =
      std::max(layer.backward_seconds, layer.backward_launches * kShortestKernel);
  layer.update_seconds = std::max(layer.update_seconds, layer.update_launches * kShortestKernel);
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

CostTable with_gpu_costs(CostTable costs, const MachineProfile& machine) {
  if (machine.device.kind != MachineKind::kCuda) return costs;
  costs.allocation_block = kAllocationBlock;
  costs.context_bytes = machine.device.context.count;
  costs.workspace_bytes = known(machine.device.workspace.count, kWorkspace);
  costs.launch = {.kernel = known(machine.device.launch, kLaunch),
                  .segment = known(machine.device.graph_launch, kGraphLaunch)};
  const auto bandwidth = static_cast<double>(machine.device.bandwidth.count);
  for (LayerCost& layer : costs.layers) {
    add_attention(layer, costs, machine);
    layer.update_seconds += gradient_seconds(costs, layer, bandwidth);
    add_launches(layer);
  }
  return costs;
}

AxisRates gpu_axis_rates(const MachineProfile& machine, const Mesh& mesh,
                         const AxisRates& otherwise) {
  if (machine.device.kind != MachineKind::kCuda) return otherwise;
  // Ranks are assigned to machines in order, the last axis fastest (Mesh::span).
  return AxisRates::made_by([&](Axis axis) {
    const bool inside = machine.peers.devices == 0 || mesh.span(axis) <= machine.peers.devices;
    const double known = static_cast<double>(inside ? machine.peers.bandwidth.count
                                                    : machine.network.bandwidth.count);
    return known > 0 ? known : otherwise[axis];
  });
}

std::int64_t communicator_bytes(const Mesh& mesh, int shard_ranks, const RankLayout& layout) {
  // Adjacent ranks of a set are as far apart as the inner axes are long, so all ranks of a set are
  // within this span.
  const int holders = mesh.weight_ranks(), span = mesh.span(Axis::kData);
  const int shards = shard_ranks == 0 ? holders : shard_ranks;
  const std::set<std::pair<int, int>> sets{{mesh.size(), mesh.size()},
                                           {holders, span},
                                           {shards, span / holders * shards},
                                           {mesh[Axis::kTensor], mesh.span(Axis::kTensor)}};
  const int in_process = mesh.size() / layout.processes;
  std::int64_t bytes = 0;
  for (const auto& [ranks, span] : sets) {
    // ranks of one process need no communicator
    if (ranks == 1 || in_process % span == 0) continue;
    const bool inside = layout.devices == 0 || layout.devices % span == 0;
    bytes += (ranks - 1) * (inside ? kChannelsInside : kChannelsAcross) * kChannelBytes;
  }
  return bytes;
}

}  // namespace strata
