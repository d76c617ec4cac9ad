#include "strata/schedule/order.h"

namespace strata::schedule {

Schedule interleaved(Shape shape) {
  return arrange("interleaved", shape, [&](int rank) {
    return Order{.group = shape.ranks, .warm_up = warm_up_1f1b(shape, rank)};
  });
}

}  // namespace strata::schedule
