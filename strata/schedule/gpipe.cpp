#include "strata/schedule/order.h"

namespace strata::schedule {

Schedule gpipe(Shape shape) {
  return arrange("gpipe", shape, [&](int) {
    return Order{.group = shape.micro_batches,
                 .warm_up = shape.micro_batches * shape.virtual_stages};
  });
}

}  // namespace strata::schedule
