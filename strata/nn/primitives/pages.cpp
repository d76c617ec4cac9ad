#include "strata/nn/primitives/pages.h"

#include <ATen/ops/tensor.h>

#include <vector>

#include "strata/device/device.h"

namespace strata {

at::Tensor gathered(const at::Tensor& pool, const PagedText& text, std::int64_t tokens) {
  const std::int64_t page_tokens = pool.size(2), positions = text.position + tokens;
  const std::int64_t used = (positions + page_tokens - 1) / page_tokens;
  const std::vector<std::int64_t> pages(text.pages.begin(), text.pages.begin() + used);
  const at::Tensor index = at::tensor(pages, host_options(at::kLong)).to(pool.device());
  return pool.index_select(0, index)
      .transpose(0, 1)
      .reshape({1, pool.size(1), used * page_tokens, pool.size(3)})
      .narrow(2, 0, positions);
}

}  // namespace strata
