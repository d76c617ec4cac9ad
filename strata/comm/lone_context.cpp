#include "strata/comm/lone_context.h"

#include <ATen/ops/zeros.h>

namespace strata {

void LoneContext::send(int /*peer*/, const MessageTag& /*tag*/, at::Tensor /*x*/) const {}

at::Tensor LoneContext::receive(int /*peer*/, const MessageTag& /*tag*/, at::IntArrayRef sizes,
                                const at::TensorOptions& options) const {
  return at::zeros(sizes, options);
}

}  // namespace strata
