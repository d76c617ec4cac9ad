/// Divides a program into segments that a device can repeat by itself, and the actions between them that
/// the host has to perform: messages between ranks, transfers to other tiers, work on the host.
///
/// A layer is performed in all of its actions or in none: a backward needs what its forward left, and
/// that is a graph on the host or memory that was recorded.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "strata/schedule/action.h"
#include "strata/schedule/layer_set.h"
#include "strata/schedule/step_plan.h"

namespace strata {

/// Positions [begin, end) of a program.
struct Segment {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const Segment&, const Segment&) = default;
};

/// Why the host performs an action of a plan; null: it need not. `performed`: layers of which it
/// performs every action.
const char* why_performed(const StepPlan& plan, const LayerSet& performed, const Action& action);

/// The layers of a program that come from other tiers or ranks, or go there, with those of `also` and
/// all that share an action with one of them.
LayerSet performed_layers(const StepPlan& plan, const Program& program, LayerSet also = {});

/// Runs of actions that nothing keeps on the host; as long as can be. `also`: what else does; null: nothing.
std::vector<Segment> segments_of(const StepPlan& plan, const Program& program,
                                 const LayerSet& performed,
                                 const std::function<bool(const Action&)>& also = {});

/// What is recorded of a program that nothing but its plan keeps on the host: none where no segment runs
/// layers, for the rest of a step is not worth it.
std::vector<Segment> recorded_segments(const StepPlan& plan, const Program& program);

/// Whether some of it runs layers.
bool runs_layers(const Program& program, const Segment& segment);

}  // namespace strata
