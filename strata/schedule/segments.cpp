// A recorded segment repeats its kernels on the addresses that were recorded, and waits only for
// events that were recorded with it. Weights of a window may be in any of several slots
// (tier/device_slots.h), depending on earlier evictions, and an offloaded gradient has new memory
// each time. Layers whose weights or gradients move are therefore performed action by action;
// recorded segments access only memory with a fixed address. The copies of a window are actions
// between segments, on streams of their own. The compute stream's wait for a fetch, and the event
// after a layer's last use that the next copy waits for, are therefore outside of every recording.
// Inside one, the wait would refer to the copy of the step that was recorded.
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

// Its weights or gradients have no fixed address on the device, or its saved inputs leave the
// device.
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
    case Op::kBackwardInput:
    case Op::kBackwardWeight:
      if (plan.decisions().mesh[Axis::kTensor] > 1 || plan.decisions().mesh[Axis::kContext] > 1)
        return "ranks that divide its layers or their inputs exchange messages";
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
  // A layer that uses a tied weight on the owner's rank reads it at the owner's address. On other
  // ranks it has a copy.
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
