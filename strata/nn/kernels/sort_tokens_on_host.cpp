#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "strata/device/simt/simt.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {

std::int64_t sort_workspace(std::int64_t /*positions*/) { return 0; }

void sort_tokens(const std::int64_t* tokens, std::int64_t positions, std::int64_t first,
                 std::int64_t count, std::int32_t* rows, std::int32_t* order, void* /*workspace*/,
                 void* /*stream*/) {
  simt::on_host_device([=] {
    const auto row_of = [&](std::int32_t position) {
      const std::int64_t row = tokens[position] - first;
      return static_cast<std::int32_t>(row >= 0 && row < count ? row : count);
    };
    std::iota(order, order + positions, 0);
    std::sort(order, order + positions, [&](std::int32_t a, std::int32_t b) {
      return std::pair(row_of(a), a) < std::pair(row_of(b), b);
    });
    std::transform(order, order + positions, rows, row_of);
  });
}

}  // namespace strata::cuda
