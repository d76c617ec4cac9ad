#include "strata/base/errors.h"
#include "strata/schedule/order.h"

namespace strata::schedule {

Schedule one_f_one_b(Shape shape) {
  if (shape.virtual_stages > 1) {
    throw UserError({.operation = "schedule.build",
                     .where = "1f1b",
                     .what = "1f1b has one stage a rank",
                     .expected = "1 virtual stage",
                     .got = std::to_string(shape.virtual_stages),
                     .fix = "choose the schedule 'interleaved', or 1 virtual stage"});
  }
  return arrange("1f1b", shape,
                 [&](int rank) { return Order{.group = 1, .warm_up = warm_up_1f1b(shape, rank)}; });
}

}  // namespace strata::schedule
