#include "strata/schedule/step_schedule.h"

#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata::schedule {

Schedule lowered_schedule(const StepRequest& request, const Dataflow& dataflow,
                          const Partition& partition) {
  LowerOptions options{.sharing = request.sharing, .update = request.trains()};
  if (request.trains()) options.recompute = request.recompute;
  return lower(build(request.schedule, request.shape), dataflow, partition, options);
}

void check_schedule(const Schedule& schedule, const StepRequest& request, const Dataflow& dataflow,
                    const Partition& partition) {
  ValidateOptions options{.backward = request.trains(), .sharing = request.sharing};
  for (int rank = 0; rank < request.shape.ranks; ++rank) {
    options.in_flight_bound.push_back(in_flight_bound(request.schedule, request.shape, rank));
  }
  validate(schedule, dataflow, partition, options);
}

Schedule make_schedule(const StepRequest& request, const Dataflow& dataflow,
                       const Partition& partition) {
  Schedule schedule = lowered_schedule(request, dataflow, partition);
  check_schedule(schedule, request, dataflow, partition);
  return schedule;
}

}  // namespace strata::schedule
