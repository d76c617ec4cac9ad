#include "strata/comm/context_group.h"

#include "strata/base/errors.h"

namespace strata {

at::Tensor ContextGroup::receive(int peer, const MessageTag& tag, at::IntArrayRef sizes,
                                 const at::TensorOptions& options) const {
  at::Tensor x = line_.receive(peer, tag);
  STRATA_CHECK(x.sizes() == sizes && x.dtype() == options.dtype(), "comm.context_receive");
  return x;
}

}  // namespace strata
