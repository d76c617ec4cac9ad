#include "strata/schedule/order.h"

namespace strata::schedule {

Schedule forward_only(Shape shape) {
  // Groups of p keep all ranks busy and hand every micro-batch on as soon as a group allows.
  return arrange("forward", shape,
                 [&](int) { return Order{.group = shape.ranks, .backward = false}; });
}

}  // namespace strata::schedule
