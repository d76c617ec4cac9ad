#include "strata/schedule/step_schedule.h"

#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata::schedule {

Schedule lowered_schedule(const StepRequest& request, const Wiring& wiring,
                          const Partition& partition) {
  LowerOptions options{.sharing = request.sharing, .update = request.trains()};
  if (request.trains()) options.recompute = request.recompute;
  return lower(build(request.schedule, request.shape), wiring, partition, options);
}

void check_schedule(const Schedule& schedule, const StepRequest& request, const Wiring& wiring,
                    const Partition& partition) {
  ValidateOptions options{.backward = request.trains(), .sharing = request.sharing};
  for (int rank = 0; rank < request.shape.ranks; ++rank) {
    options.in_flight_bound.push_back(in_flight_bound(request.schedule, request.shape, rank));
  }
  validate(schedule, wiring, partition, options);
}

Schedule make_schedule(const StepRequest& request, const Wiring& wiring,
                       const Partition& partition) {
  Schedule schedule = lowered_schedule(request, wiring, partition);
  check_schedule(schedule, request, wiring, partition);
  return schedule;
}

}  // namespace strata::schedule
