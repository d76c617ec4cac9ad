#include "strata/base/errors.h"
#include "strata/schedule/passes.h"

namespace strata::schedule {

Schedule with_layers(Schedule schedule, const Partition& partition) {
  STRATA_CHECK_EQ(partition.num_stages(), schedule.num_stages(), "schedule.with_layers");
  for (Program& program : schedule.programs) {
    for (Action& action : program) {
      if (is_compute(action.op)) action.layers = partition.layers(action.stage);
    }
  }
  return schedule;
}

}  // namespace strata::schedule
