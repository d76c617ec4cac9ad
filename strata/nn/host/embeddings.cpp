// In backward threads share the columns, so every sum is made by one thread, in ascending order.
#include <ATen/ops/empty.h>

#include <cstring>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {

at::Tensor HostPrimitives::rows(const at::Tensor& tokens, const at::Tensor& weight,
                                std::int64_t first) const {
  const std::int64_t count = weight.size(0), width = weight.size(1);
  at::Tensor y = at::empty({tokens.size(0), tokens.size(1), width}, weight.options());
  const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
  const auto bytes = static_cast<std::size_t>(width) * weight.element_size();
  parallel_rows(tokens.numel(), width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = token[i] - first;
      if (row >= 0 && row < count) {
        std::memcpy(mutable_at_element(y, i * width), at_element(weight, row * width), bytes);
      } else {
        std::memset(mutable_at_element(y, i * width), 0, bytes);
      }
    }
  });
  return y;
}

void HostPrimitives::add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                              std::int64_t first) const {
  const std::int64_t count = sum.size(0), width = sum.size(1), positions = tokens.numel();
  const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
  float* sums = sum.data_ptr<float>();
  parallel_columns(positions, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < positions; ++i) {
      const std::int64_t row = token[i] - first;
      if (row >= 0 && row < count)
        kernels::add_to(element_of(dy), at_element(dy, i * width + begin),
                        sums + row * width + begin, end - begin);
    }
  });
}

void HostPrimitives::add_positions(const at::Tensor& x, const at::Tensor& positions) const {
  const std::int64_t length = x.size(1), width = x.size(2);
  parallel_rows(x.size(0) * length, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      kernels::add(element_of(x), at_element(x, i * width),
                   at_element(positions, i % length * width), mutable_at_element(x, i * width),
                   width);
  });
}

void HostPrimitives::add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const {
  const std::int64_t length = dy.size(1), width = dy.size(2), rows = dy.size(0) * length;
  float* sums = sum.data_ptr<float>();
  parallel_columns(rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < rows; ++i)
      kernels::add_to(element_of(dy), at_element(dy, i * width + begin),
                      sums + i % length * width + begin, end - begin);
  });
}

}  // namespace strata
