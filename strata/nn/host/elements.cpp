#include "strata/nn/host/elements.h"

#include <ATen/ops/empty.h>

#include "strata/base/errors.h"
#include "strata/device/parallel.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {
kernels::Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kFloat:
      return kernels::Element::kFp32;
    case at::kBFloat16:
      return kernels::Element::kBf16;
    case at::kHalf:
      return kernels::Element::kFp16;
    default:
      STRATA_CHECK(false, "nn.element_of");
      return kernels::Element::kFp32;
  }
}

at::Tensor widened(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return x.detach();
  at::Tensor wide = at::empty(x.sizes(), x.options().dtype(at::kFloat));
  const kernels::Element element = element_of(x);
  float* to = wide.data_ptr<float>();
  parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
    kernels::widen(element, at_element(x, begin), to + begin, end - begin);
  });
  return wide;
}

}  // namespace strata
