/// Divides a program into segments that a device can repeat without the host, and the actions
/// between them that the host has to perform: messages between ranks, transfers to other tiers,
/// updates on the host.
///
/// Either all actions of a layer are recorded or none: a backward needs what its forward saved, and
/// that is a graph on the host or memory at recorded addresses.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "strata/layout/layer_set.h"
#include "strata/schedule/action.h"
#include "strata/schedule/step_plan.h"

namespace strata {

/// Positions [begin, end) of a program.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Why the host has to perform an action of a plan; null: it does not. `performed`: the layers that
/// run action by action.
const char* why_performed(const StepPlan& plan, const LayerSet& performed, const Action& action);

/// The layers of a program whose weights, gradients or inputs move between tiers or ranks, the
/// layers of `also`, and all layers that share an action with one of them.
LayerSet performed_layers(const StepPlan& plan, const Program& program, LayerSet also = {});

/// The longest runs of actions that the host does not have to perform. `also`: a further reason to
/// perform an action; null: none.
std::vector<Segment> segments_of(const StepPlan& plan, const Program& program,
                                 const LayerSet& performed,
                                 const std::function<bool(const Action&)>& also = {});

/// The segments of a program to record, if only its plan requires actions on the host. Empty if no
/// segment runs layers: recording the rest of a step gains nothing.
std::vector<Segment> recorded_segments(const StepPlan& plan, const Program& program);

/// Whether an action of the segment runs layers.
bool runs_layers(const Program& program, const Segment& segment);

}  // namespace strata
