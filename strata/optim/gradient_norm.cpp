#include "strata/optim/gradient_norm.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

// 64 Ki elements; for fewer, a second thread does not pay
constexpr std::int64_t kBlocksPerThread = 64;

// Adds squares of elements [begin, end) of a layer to its blocks' `sums`; `x` points at `begin`.
void square_range(const float* x, std::int64_t begin, std::int64_t end, std::span<double> sums) {
  const std::int64_t edge = std::min(end, (begin + kFlatBlock - 1) / kFlatBlock * kFlatBlock);
  if (begin < edge) {  // the rest of a block that another range may have begun
    double sum = 0;
    block_squares(x, &sum, edge - begin);
    sums[begin / kFlatBlock] += sum;
  }
  const std::int64_t first = edge / kFlatBlock, last = (end + kFlatBlock - 1) / kFlatBlock;
  if (edge >= end) return;
  parallel_ranges(last - first, kBlocksPerThread, [&](std::int64_t from, std::int64_t to) {
    block_squares(x + (first + from) * kFlatBlock - begin, sums.data() + first + from,
                  std::min((first + to) * kFlatBlock, end) - (first + from) * kFlatBlock);
  });
}

}  // namespace

double ordered_sum(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

void block_sums(const at::Tensor& gradients, FlatRange part, std::span<const FlatRange> counted,
                std::span<double> sums) {
  STRATA_CHECK(gradients.device().is_cpu() && gradients.is_contiguous(), "optim.block_sums");
  STRATA_CHECK_EQ(gradients.scalar_type(), at::kFloat, "optim.block_sums");
  STRATA_CHECK_EQ(gradients.numel(), part.size(), "optim.block_sums");
  std::ranges::fill(sums, 0.0);
  const float* values = gradients.const_data_ptr<float>();
  for (const FlatRange range : counted) {
    const std::int64_t begin = std::max(range.begin, part.begin);
    const std::int64_t end = std::min(range.end, part.end);
    if (begin < end) square_range(values + begin - part.begin, begin, end, sums);
  }
}

std::vector<double> block_sums(const at::Tensor& gradients, FlatRange part,
                               std::span<const FlatRange> counted, std::int64_t numel) {
  std::vector<double> sums(static_cast<std::size_t>(num_blocks(numel)));
  block_sums(gradients, part, counted, std::span(sums));
  return sums;
}

double sum_of_squares(const at::Tensor& gradients) {
  const FlatRange whole{0, gradients.numel()};
  return ordered_sum(block_sums(gradients, whole, {&whole, 1}, whole.size()));
}

}  // namespace strata
