#include "strata/optim/gradient_norm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/base/errors.h"
#include "strata/optim/block_squares.h"

namespace strata {
namespace {

constexpr std::int64_t kBlocksPerThread = 64;  // 64 Ki elements: below, a second thread costs more

double ordered_sum(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

double sum_of_squares(const at::Tensor& gradients) {
  STRATA_CHECK(gradients.device().is_cpu() && gradients.is_contiguous(), "optim.sum_of_squares");
  STRATA_CHECK_EQ(gradients.scalar_type(), at::kFloat, "optim.sum_of_squares");
  const std::int64_t numel = gradients.numel();
  const std::int64_t num_blocks = (numel + kNormBlock - 1) / kNormBlock;
  const float* values = gradients.const_data_ptr<float>();
  std::vector<double> sums(num_blocks);
  at::parallel_for(0, num_blocks, kBlocksPerThread, [&](std::int64_t begin, std::int64_t end) {
    block_squares(values + begin * kNormBlock, sums.data() + begin,
                  std::min(end * kNormBlock, numel) - begin * kNormBlock);
  });
  return ordered_sum(sums);
}

double global_norm(std::span<const double> layer_sums) {
  return std::sqrt(ordered_sum(layer_sums));
}

double clip_factor(double norm, double clip) { return clip > 0 && norm > clip ? clip / norm : 1.0; }

}  // namespace strata
