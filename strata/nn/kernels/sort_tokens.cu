// Uses CUB's radix sort, which is stable, over as many bits as row numbers have.
#include <cub/device/device_radix_sort.cuh>

#include "strata/device/simt/simt.h"
#include "strata/nn/kernels/cuda_kernels.h"

namespace strata::cuda {
namespace {

constexpr std::int64_t kBorder = 256;  // bytes

std::int64_t rounded_up(std::int64_t bytes) { return (bytes + kBorder - 1) / kBorder * kBorder; }

struct NumberTokens {
  static constexpr int kThreads = 256;
  const std::int64_t* tokens;
  std::int64_t positions, first, count;
  std::int32_t* rows;
  std::int32_t* order;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t position = block.index() * kThreads + thread;
      if (position >= positions) return;
      const std::int64_t row = tokens[position] - first;
      rows[position] = static_cast<std::int32_t>(row >= 0 && row < count ? row : count);
      order[position] = static_cast<std::int32_t>(position);
    });
  }
};

// Number of bits of the numbers 0 ... most.
int bits_of(std::int64_t most) {
  int bits = 1;
  while (most >> bits) ++bits;
  return bits;
}

cudaError_t sort(void* workspace, std::size_t& bytes, const std::int32_t* rows,
                 std::int32_t* sorted, const std::int32_t* positions, std::int32_t* order,
                 std::int64_t n, int bits, void* stream) {
  return cub::DeviceRadixSort::SortPairs(workspace, bytes, rows, sorted, positions, order,
                                         static_cast<int>(n), 0, bits,
                                         static_cast<cudaStream_t>(stream));
}

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw InternalError({.operation = "nn.sort_tokens",
                         .what = "the device refused to sort",
                         .got = cudaGetErrorString(error)});
}

std::size_t own_bytes(std::int64_t positions) {
  std::size_t bytes = 0;
  check(sort(nullptr, bytes, nullptr, nullptr, nullptr, nullptr, positions, 32, nullptr));
  return bytes;
}

}  // namespace

std::int64_t sort_workspace(std::int64_t positions) {
  return 2 * rounded_up(4 * positions) + static_cast<std::int64_t>(own_bytes(positions));
}

void sort_tokens(const std::int64_t* tokens, std::int64_t positions, std::int64_t first,
                 std::int64_t count, std::int32_t* rows, std::int32_t* order, void* workspace,
                 void* stream) {
  if (positions == 0) return;
  STRATA_CHECK(positions <= INT32_MAX && count < INT32_MAX, "nn.sort_tokens");
  auto* at = static_cast<unsigned char*>(workspace);
  auto* unsorted = reinterpret_cast<std::int32_t*>(at);
  auto* numbers = reinterpret_cast<std::int32_t*>(at + rounded_up(4 * positions));
  simt::launch(NumberTokens{tokens, positions, first, count, unsorted, numbers},
               simt::blocks_for(positions, NumberTokens::kThreads), stream);
  std::size_t bytes = own_bytes(positions);
  check(sort(at + 2 * rounded_up(4 * positions), bytes, unsorted, rows, numbers, order, positions,
             bits_of(count), stream));
}

}  // namespace strata::cuda
