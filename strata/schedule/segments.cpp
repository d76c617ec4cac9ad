// A device repeats kernels on the addresses that were recorded, and waits only for what was recorded beside
// them. Weights of a window lie in one of several places (tier/device_slots.h), and which it is depends on
// what left before; a gradient that leaves has other memory each time. So layers that come and go are
// performed, and what is recorded reads and writes only memory that stays where it is. The copies
// of a window are actions between segments, given to streams of their own: the compute stream's wait for an
// arrival and the event behind a layer's last use, for which the next copy waits, are then outside of
// every recording. Inside, a wait would be for the copy of the step that was recorded.
#include "strata/schedule/segments.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

bool any_of(const LayerRange& layers, const LayerSet& set) {
  for (int layer = layers.begin; layer < layers.end; ++layer)
    if (set.has(layer)) return true;
  return false;
}

// Its weights or gradients are not always at one place of the device, or what it keeps leaves it.
bool comes_and_goes(const StepPlan& plan, int layer) {
  const LayerShards shards = plan.shards()[layer];
  const LayerTiers tiers = plan.decisions().tiers[layer];
  return shards.weights || shards.gradients || tiers.fetches_weights() ||
         tiers.offloads_gradients() || tiers.updates_on_host() || tiers.offloads_activations() ||
         layer == plan.dataflow().rows_layer;
}

const char* why_updated_by_host(const StepPlan& plan, const LayerRange& layers) {
  for (int layer = layers.begin; layer < layers.end; ++layer) {
    if (plan.decisions().tiers[layer].updates_on_host())
      return "its layers are updated on the host";
    if (plan.shards()[layer].gathers_weights()) return "replicas exchange the weights";
  }
  return nullptr;
}

}  // namespace

const char* why_performed(const StepPlan& plan, const LayerSet& performed, const Action& action) {
  switch (action.op) {
    case Op::kForward:
    case Op::kRecompute:
    case Op::kBackward:
      if (plan.decisions().mesh.tp > 1) return "ranks that divide its layers exchange messages";
      return any_of(action.layers, performed) ? "its layers come from elsewhere, or go there"
                                              : nullptr;
    case Op::kAddTiedGradients: {
      const Tie& tie = plan.dataflow().ties[action.value];
      bool moves = performed.has(tie.owner);
      for (const int user : tie.users) moves = moves || performed.has(user);
      return moves ? "its layers come from elsewhere, or go there" : nullptr;
    }
    case Op::kReduceNormAndLoss:
      if (plan.decisions().mesh.size() > 1) return "ranks add their sums";
      return why_updated_by_host(plan, {0, plan.dataflow().num_layers});
    case Op::kUpdate:
      return why_updated_by_host(plan, action.layers);
    case Op::kReduceGradients:
    case Op::kAwaitGradients:
    case Op::kGatherWeights:
      return "replicas exchange what it is about";
    case Op::kPrefetchRows:
    case Op::kFetchRows:
    case Op::kSendRowGradients:
      return "rows live elsewhere";
    case Op::kOffloadActivations:
    case Op::kFetchActivations:
    case Op::kPrefetchWeights:
    case Op::kReleaseWeights:
    case Op::kOffloadGradients:
      return "it moves memory between tiers";
    case Op::kSendActivation:
    case Op::kReceiveActivation:
    case Op::kSendGradient:
    case Op::kReceiveGradient:
    case Op::kSendTiedGradient:
    case Op::kReceiveTiedGradient:
    case Op::kSendTiedWeight:
    case Op::kReceiveTiedWeight:
      return "it is a message to another rank";
  }
  STRATA_CHECK(false, "schedule.why_performed");
}

LayerSet performed_layers(const StepPlan& plan, const Program& program, LayerSet also) {
  for (int layer = 0; layer < plan.dataflow().num_layers; ++layer)
    if (comes_and_goes(plan, layer)) also.add(layer);
  // Whoever uses a weight of such a layer reads it where that lies; on another rank it has its own.
  for (const Tie& tie : plan.dataflow().ties)
    for (const int user : tie.users)
      if (comes_and_goes(plan, tie.owner) &&
          plan.pipeline_rank(user) == plan.pipeline_rank(tie.owner))
        also.add(user);
  for (bool grows = true; grows;) {
    grows = false;
    for (const Action& action : program) {
      if (!is_compute(action.op) || !any_of(action.layers, also)) continue;
      for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
        grows = grows || !also.has(layer);
        also.add(layer);
      }
    }
  }
  return also;
}

std::vector<Segment> segments_of(const StepPlan& plan, const Program& program,
                                 const LayerSet& performed,
                                 const std::function<bool(const Action&)>& also) {
  std::vector<Segment> segments;
  bool open = false;
  for (std::size_t position = 0; position < program.size(); ++position) {
    const Action& action = program[position];
    const bool records =
        why_performed(plan, performed, action) == nullptr && (!also || !also(action));
    if (records && !open) segments.push_back({position, position});
    if (records) segments.back().end = position + 1;
    open = records;
  }
  return segments;
}

bool runs_layers(const Program& program, const Segment& segment) {
  return std::any_of(program.begin() + static_cast<std::ptrdiff_t>(segment.begin),
                     program.begin() + static_cast<std::ptrdiff_t>(segment.end),
                     [](const Action& action) { return is_compute(action.op); });
}

std::vector<Segment> recorded_segments(const StepPlan& plan, const Program& program) {
  std::vector<Segment> segments = segments_of(plan, program, performed_layers(plan, program));
  if (std::ranges::none_of(segments, [&](const Segment& s) { return runs_layers(program, s); }))
    segments.clear();
  return segments;
}

}  // namespace strata
