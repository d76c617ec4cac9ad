// A block is copied together with the value that it produces, so all later indices shift; readers
// of its output read that of the last copy.
#include "strata/plan/search/tier_depth.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include <nlohmann/json.hpp>

#include "strata/base/units.h"
#include "strata/plan/search/proposal.h"

namespace strata {
namespace {

constexpr int kMostLayers = 1 << 12;  // limit of the search; beyond it a proposal takes seconds

struct Block {
  int layer = 0;
  int output = 0;  // value
  int equals = 0;  // number of layers of its kind, including itself
};

// Layers with equal keys are of one kind.
using Kind = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

Kind kind_of(const LayerCost& layer) {
  return {layer.weight_bytes, layer.gradient_bytes, layer.saved_bytes};
}

// The layer of the most frequent kind with one input and one output in a chain.
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
  const auto& layers = request.costs[Recompute::kCheap].layers;
  std::map<Kind, int> counts;
  for (const LayerCost& layer : layers) ++counts[kind_of(layer)];
  std::optional<Block> best;
  for (int l = 0; l < dataflow.num_layers; ++l) {
    if (inputs[l] != 1 || outputs[l] != 1 || tied.has(l) || layers[l].weight_bytes == 0) continue;
    const int equals = counts.at(kind_of(layers[l]));
    if (!best || equals > best->equals) best = Block{l, output[l], equals};
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
  for (CostTable& costs : request.costs) add_copies(costs, block, copies);
  return request;
}

TierChoice choice_of(Tier tier) {
  return tier == Tier::kDevice ? TierChoice::kDevice
         : tier == Tier::kHost ? TierChoice::kHost
                               : TierChoice::kDisk;
}

// What a model with more layers needs of each tier that has a budget.
struct Probe {
  int copies = 0;
  std::array<std::int64_t, 3> bytes{};
};

// Bytes grow almost evenly with the layers, so two models predict where a budget ends, and a few
// near that depth are tried instead of a whole bisection: plans that nearly fit take longest.
class DepthSearch {
 public:
  DepthSearch(const PlanRequest& request, const Block& block)
      : request_(request),
        block_(block),
        budgets_{request.memory.device.count, request.memory.host.count,
                 request.memory.disk.bytes.count},
        most_(std::max(0, kMostLayers - request.dataflow.num_layers)),
        high_(most_ + 1) {}

  // The largest number of copies of the block that fits; -1: not even zero.
  int operator()() {
    if (!holds(0)) return -1;
    if (most_ == 0) return 0;
    const Probe none = last_;
    if (holds(std::min(std::max(kFirst, request_.dataflow.num_layers), most_))) {
      for (int i = 0; i < kEstimates && is_open(); ++i) holds(reach(none));
    }
    const bool from_above = !is_open();
    for (int step = 1; high_ - low_ > 1; step *= 2) {
      const int tried = from_above ? high_ - step : low_ + step;
      if (holds(std::clamp(tried, low_ + 1, high_ - 1)) == from_above) break;
    }
    while (high_ - low_ > 1) holds(low_ + (high_ - low_) / 2);
    return low_;
  }

  bool holds_all() const { return low_ == most_; }

 private:
  static constexpr int kFirst = 32;
  static constexpr int kEstimates = 4;

  // Whether no depth has failed to fit so far.
  bool is_open() const { return high_ > most_ && low_ < most_; }

  bool holds(int copies) {
    const Plan plan = first_that_fits(with_copies(request_, block_, copies));
    last_ = {copies, {peak_bytes(plan.ledger), host_bytes(plan.ledger), disk_bytes(plan.ledger)}};
    const bool fit = fits(plan);
    (fit ? low_ : high_) = copies;
    return fit;
  }

  // Extrapolates from the bytes of two depths that fit, `none` and the last one.
  int reach(const Probe& none) const {
    double copies = most_;
    for (std::size_t tier = 0; tier < budgets_.size(); ++tier) {
      const auto grown = static_cast<double>(last_.bytes[tier] - none.bytes[tier]);
      if (budgets_[tier] == 0 || grown <= 0) continue;
      const auto room = static_cast<double>(budgets_[tier] - none.bytes[tier]);
      copies = std::min(copies, last_.copies * room / grown);
    }
    return std::clamp(static_cast<int>(copies), low_ + 1, high_ - 1);
  }

  const PlanRequest& request_;
  const Block& block_;
  std::array<std::int64_t, 3> budgets_;  // device, host, disk; 0: no budget
  int most_;
  int low_ = 0, high_;  // what fits, and what does not or is not tried
  Probe last_;
};

TierDepth depth_of(const PlanRequest& request, const Block& block,
                   const std::vector<double>& parameters) {
  TierDepth depth;
  DepthSearch search(request, block);
  const int copies = search();
  if (copies < 0) return depth;
  depth.any = search.holds_all();
  depth.layers = request.dataflow.num_layers + copies;
  depth.blocks = block.equals + copies;
  depth.parameters = std::accumulate(parameters.begin(), parameters.end(), 0.0) +
                     copies * parameters.at(block.layer);
  return depth;
}

}  // namespace

PlanRequest deepened(PlanRequest request, int copies) {
  const auto block = block_of(request);
  return block ? with_copies(std::move(request), *block, copies) : request;
}

std::vector<TierDepth> largest_depths(const PlanRequest& request,
                                      const std::vector<double>& parameters) {
  if (request.memory.device.count == 0) return {};
  const auto block = block_of(request);
  if (!block) return {};
  std::vector<TierDepth> depths;
  MemoryOptions open;
  open.disk = request.memory.disk;
  for (const TierPlacement& placement : tier_placements(open, /*trains=*/true)) {
    const LayerTiers& tiers = placement.tiers;
    // on a disk: everything
    if (tiers.states == Tier::kDisk && tiers.weights != Tier::kDisk) continue;
    PlanRequest fixed = request;
    MemoryOptions& memory = fixed.memory;
    memory.weights = choice_of(tiers.weights);
    memory.gradients = choice_of(tiers.gradients);
    memory.states = choice_of(tiers.states);
    memory.window = tiers.fetches_weights() ? 2 : 0;
    TierDepth depth = depth_of(fixed, *block, parameters);
    const std::string text = placement_text(placement);
    depth.placement = text.empty() ? "on the device" : "with " + text;
    depths.push_back(std::move(depth));
  }
  return depths;
}

std::string depths_sentence(const std::vector<TierDepth>& depths, const std::string& field) {
  std::string text;
  for (const TierDepth& depth : depths) {
    text += text.empty() ? "largest of this shape: " : ", ";
    if (depth.layers == 0) {
      text += "not this one";
    } else {
      const std::string blocks = std::to_string(depth.blocks);
      text += (depth.any ? "at least " : "") +
              (field.empty() ? blocks + " equal layers" : field + "=" + blocks) + " (" +
              format_count(depth.parameters) + ")";
    }
    text += " " + depth.placement;
    if (depth.any) break;  // if all tried depths fit here, other tiers add nothing
  }
  return text;
}

nlohmann::json to_json(const std::vector<TierDepth>& depths) {
  nlohmann::json all = nlohmann::json::array();
  for (const TierDepth& depth : depths) {
    all.push_back({{"placement", depth.placement},
                   {"layers", depth.layers},
                   {"blocks", depth.blocks},
                   {"parameters", depth.parameters},
                   {"at_least", depth.any}});
  }
  return all;
}

}  // namespace strata
