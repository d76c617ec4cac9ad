// Four threads handle a block of 1,024 elements. Each keeps four of the host's sixteen sums; a
// 16-byte read feeds one element to each.
#include "strata/device/simt/simt_vector.h"
#include "strata/optim/cuda_kernels.h"

namespace strata::cuda {
namespace {

struct BlockSquares {
  static constexpr int kThreads = 256, kSums = 16, kOwn = 4, kTogether = kSums / kOwn;
  struct Shared {
    double sums[kThreads][kOwn];
  };
  const float* x;
  double* sums;
  std::int64_t n;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block, Shared& shared) const {
    block.each([&](int thread) {
      const std::int64_t begin = flat_block(block.index(), thread) * kFlatBlock;
      const std::int64_t end = simt::least(begin + kFlatBlock, n);
      double own[kOwn] = {0, 0, 0, 0};
      const auto add = [&](std::int64_t i, auto left) {
        const auto values = simt::load<kOwn>(x + i, left);
        STRATA_UNROLL
        for (int k = 0; k < kOwn; ++k) {
          const double value = values[k];
          own[k] = simt::fma(value, value, own[k]);
        }
      };
      std::int64_t i = begin + thread % kTogether * kOwn;
      if (simt::lie_whole(x)) {
        STRATA_UNROLL_4
        for (; i + kOwn <= end; i += kSums) add(i, simt::Whole(end - i));
      }
      for (; i < end; i += kSums) add(i, end - i);
      STRATA_UNROLL
      for (int k = 0; k < kOwn; ++k) shared.sums[thread][k] = own[k];
    });
    block.each([&](int thread) {
      const std::int64_t at = flat_block(block.index(), thread);
      if (thread % kTogether != 0 || at * kFlatBlock >= n) return;
      double all[kSums];
      STRATA_UNROLL
      for (int j = 0; j < kSums; ++j) all[j] = shared.sums[thread + j / kOwn][j % kOwn];
      sums[at] += simt::tree_sum(all);
    });
  }

  STRATA_DEVICE static std::int64_t flat_block(std::int64_t block, int thread) {
    return (block * kThreads + thread) / kTogether;
  }
};

}  // namespace

void add_block_squares(const float* x, double* sums, std::int64_t n, void* stream) {
  constexpr std::int64_t kPerBlock = BlockSquares::kThreads / BlockSquares::kTogether * kFlatBlock;
  simt::launch(BlockSquares{x, sums, n}, simt::blocks_for(n, kPerBlock), stream);
}

}  // namespace strata::cuda
