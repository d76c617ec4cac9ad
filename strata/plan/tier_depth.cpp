// A block is copied with the value that it makes, so that everything behind it moves along; what reads
// its output reads that of the last copy.
#include "strata/plan/tier_depth.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "strata/base/units.h"
#include "strata/plan/proposal.h"

namespace strata {
namespace {

constexpr int kMostLayers = 1 << 12;  // tried; beyond it a proposal takes seconds

struct Block {
  int layer = 0;
  int output = 0;  // value
};

bool are_equal(const LayerCost& a, const LayerCost& b) {
  return a.weight_bytes == b.weight_bytes && a.gradient_bytes == b.gradient_bytes &&
         a.saved_bytes == b.saved_bytes;
}

// The layer of the most frequent kind that stands in a chain.
std::optional<Block> block_of(const PlanRequest& request) {
  const Dataflow& dataflow = request.dataflow;
  std::vector<int> inputs(dataflow.num_layers), outputs(dataflow.num_layers);
  std::vector<int> output(dataflow.num_layers);
  for (int v = 0; v < static_cast<int>(dataflow.values.size()); ++v) {
    const Value& value = dataflow.values[v];
    if (value.consumers.empty()) continue;
    ++outputs[value.producer];
    output[value.producer] = v;
    for (const int consumer : value.consumers) ++inputs[consumer];
  }
  const LayerSet tied = tied_layers(dataflow);
  const auto& layers = request.costs_cheap.layers;
  std::optional<Block> best;
  std::ptrdiff_t most = 0;
  for (int l = 0; l < dataflow.num_layers; ++l) {
    if (inputs[l] != 1 || outputs[l] != 1 || tied.has(l) || layers[l].weight_bytes == 0) continue;
    const auto equals = std::ranges::count_if(
        layers, [&](const LayerCost& other) { return are_equal(layers[l], other); });
    if (equals > most) best = Block{l, output[l]};
    most = std::max(most, equals);
  }
  return best;
}

void add_copies(CostTable& costs, const Block& block, int copies) {
  if (costs.layers.empty()) return;
  const LayerCost layer = costs.layers[block.layer];
  const ValueCost value = costs.values[block.output];
  costs.layers.insert(costs.layers.begin() + block.layer + 1, copies, layer);
  costs.values.insert(costs.values.end(), copies, value);
}

PlanRequest with_copies(PlanRequest request, const Block& block, int copies) {
  Dataflow& dataflow = request.dataflow;
  const auto moved = [&](int& layer) {
    if (layer > block.layer) layer += copies;
  };
  dataflow.num_layers += copies;
  for (Value& value : dataflow.values) {
    moved(value.producer);
    std::ranges::for_each(value.consumers, moved);
  }
  for (Tie& tie : dataflow.ties) {
    moved(tie.owner);
    std::ranges::for_each(tie.users, moved);
  }
  const Value original = dataflow.values[block.output];
  for (int copy = 0; copy < copies; ++copy) {
    const int layer = block.layer + 1 + copy;
    Value value = original;
    value.producer = layer;
    if (copy + 1 < copies) value.consumers = {layer + 1};
    dataflow.values.push_back(value);
  }
  if (copies > 0) dataflow.values[block.output].consumers = {block.layer + 1};
  add_copies(request.costs_none, block, copies);
  add_copies(request.costs_cheap, block, copies);
  auto& tensor = request.mesh.tensor;
  if (!tensor.empty())
    tensor.insert(tensor.begin() + block.layer + 1, copies, TensorTraffic(tensor[block.layer]));
  return request;
}

TierChoice choice_of(Tier tier) {
  return tier == Tier::kDevice ? TierChoice::kDevice
         : tier == Tier::kHost ? TierChoice::kHost
                               : TierChoice::kDisk;
}

TierDepth depth_of(const PlanRequest& request, const Block& block) {
  TierDepth depth;
  const int own = request.dataflow.num_layers;
  const auto holds = [&](int copies) { return fits(propose(with_copies(request, block, copies))); };
  if (!holds(0)) return depth;
  int low = 0, high = std::max(1, own);
  while (own + high <= kMostLayers && holds(high)) {
    low = high;
    high *= 2;
  }
  depth.any = own + high > kMostLayers;
  while (!depth.any && high - low > 1) {
    const int middle = low + (high - low) / 2;
    (holds(middle) ? low : high) = middle;
  }
  depth.layers = own + low;
  const CostTable& costs = costs_for(request);
  std::int64_t bytes = low * costs.layers[block.layer].weight_bytes;
  for (const LayerCost& layer : costs.layers) bytes += layer.weight_bytes;
  depth.parameters = static_cast<double>(bytes) / costs.weight_element_bytes;
  return depth;
}

}  // namespace

PlanRequest deepened(PlanRequest request, int copies) {
  const auto block = block_of(request);
  return block ? with_copies(std::move(request), *block, copies) : request;
}

std::vector<TierDepth> largest_depths(const PlanRequest& request) {
  const auto block = block_of(request);
  if (!block || request.memory.device.count == 0) return {};
  std::vector<TierDepth> depths;
  MemoryOptions open;
  open.disk = request.memory.disk;
  for (const TierPlacement& placement : tier_placements(open, /*trains=*/true)) {
    const LayerTiers& tiers = placement.tiers;
    if (tiers.states == Tier::kDisk && tiers.weights != Tier::kDisk) continue;  // of disks the most
    PlanRequest fixed = request;
    MemoryOptions& memory = fixed.memory;
    memory.weights = choice_of(tiers.weights);
    memory.gradients = choice_of(tiers.gradients);
    memory.states = choice_of(tiers.states);
    memory.window = tiers.fetches_weights() ? 2 : 0;
    TierDepth depth = depth_of(fixed, *block);
    const std::string text = placement_text(placement);
    depth.placement = text.empty() ? "on the device" : "with " + text;
    depths.push_back(std::move(depth));
  }
  return depths;
}

std::string depths_sentence(const std::vector<TierDepth>& depths) {
  std::string text;
  for (const TierDepth& depth : depths) {
    text += text.empty() ? "largest of this shape: " : ", ";
    if (depth.layers == 0) {
      text += "not this one";
    } else {
      text += (depth.any ? "at least " : "") + std::to_string(depth.layers) + " layers (" +
              format_count(depth.parameters) + ")";
    }
    text += " " + depth.placement;
  }
  return text;
}

nlohmann::json to_json(const std::vector<TierDepth>& depths) {
  nlohmann::json all = nlohmann::json::array();
  for (const TierDepth& depth : depths) {
    all.push_back({{"placement", depth.placement},
                   {"layers", depth.layers},
                   {"parameters", depth.parameters},
                   {"at_least", depth.any}});
  }
  return all;
}

}  // namespace strata
