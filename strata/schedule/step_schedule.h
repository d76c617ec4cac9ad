/// Makes the programs of a step whole: built, lowered and checked. The planner and the trainer call
/// this and nothing else, so that what is planned is what runs.
///
/// Errors  UserError: what builders and validator refuse.
#pragma once

#include <string>
#include <vector>

#include "strata/schedule/builders.h"
#include "strata/schedule/dataflow.h"
#include "strata/schedule/sharing.h"

namespace strata::schedule {

/// What a step's programs are made of, beside the model and its cut.
struct StepRequest {
  std::string schedule = "1f1b";  ///< gpipe | 1f1b | interleaved | forward
  Shape shape;
  std::vector<char> recompute = {};  ///< per layer; empty: none. Of no effect without backwards.
  Sharing sharing = {};

  bool trains() const { return schedule != "forward"; }
};

/// Not checked yet: for plans that are compared before one is chosen.
Schedule lowered_schedule(const StepRequest& request, const Dataflow& dataflow,
                          const Partition& partition);

/// Refuses a schedule that could not run, or that holds more activations than its name promises.
void check_schedule(const Schedule& schedule, const StepRequest& request, const Dataflow& dataflow,
                    const Partition& partition);

/// Lowered and checked.
Schedule make_schedule(const StepRequest& request, const Dataflow& dataflow,
                       const Partition& partition);

}  // namespace strata::schedule
