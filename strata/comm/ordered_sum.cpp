// On a device terms are read in place and whole: chunks would only add launches.
#include "strata/comm/ordered_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/maximum.h>

#include <algorithm>
#include <memory>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/comm/rank_device.h"

namespace strata {
namespace {

constexpr std::int64_t kBlock = 1 << 17;  // bytes summed at a time, in L2: few system calls

template <typename T>
void sum_in_order(std::vector<ImportedChunks>& terms, T* out, std::int64_t numel) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr std::int64_t kElements = kBlock / static_cast<std::int64_t>(sizeof(T));
  static_assert(kChunkElements % kElements == 0);
  const auto most = static_cast<std::size_t>(std::min(kElements, numel));
  const auto buffer = std::make_unique_for_overwrite<T[]>(most);
  const auto sum = std::make_unique_for_overwrite<Wide[]>(most);
  for (std::int64_t begin = 0; begin < numel; begin += kElements) {
    const std::int64_t count = std::min(kElements, numel - begin);
    const auto next = [&](ImportedChunks& term) {
      constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;
      return static_cast<const T*>(term.next(count, kType, buffer.get()));
    };
    const T* first = next(terms[0]);
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Wide>(first[i]);
    for (std::size_t t = 1; t < terms.size(); ++t) {
      const T* term = next(terms[t]);
      for (std::int64_t i = 0; i < count; ++i) sum[i] += static_cast<Wide>(term[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) out[begin + i] = static_cast<T>(sum[i]);
  }
}

}  // namespace

void sum_in_order(std::vector<ImportedChunks>& terms, const at::Tensor& out) {
  STRATA_CHECK(out.is_contiguous(), "comm.sum");
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, out.scalar_type(), "sum_in_order", [&] {
    sum_in_order<scalar_t>(terms, out.data_ptr<scalar_t>(), out.numel());
  });
}

void sum_whole(Group& group, std::vector<ImportedChunks>& terms, const at::Tensor& out) {
  RankDevice& device = group.rank_device();
  if (!device.owns(out)) return sum_in_order(terms, out);
  if (out.numel() == 0) return;
  std::vector<at::Tensor> tensors;
  for (ImportedChunks& term : terms) {
    STRATA_CHECK_EQ(term.numel(), out.numel(), "comm.sum");
    tensors.push_back(term.whole(out.scalar_type()));
  }
  group.before_write(out);  // a rank that sends its term has read the earlier exports
  device.ops->sum_in_order(device.stream, tensors, out);
}

void sum_whole(Group& group, const std::vector<ImportedBuffer>& terms, const at::Tensor& out) {
  std::vector<ImportedChunks> chunks;
  for (const ImportedBuffer& term : terms) {
    STRATA_CHECK_EQ(term.numel(), out.numel(), "comm.sum");
    chunks.emplace_back(term);
  }
  sum_whole(group, chunks, out);
}

void max_whole(Group& group, const std::vector<ImportedBuffer>& terms, const at::Tensor& out) {
  RankDevice& device = group.rank_device();
  if (device.owns(out)) {
    const std::vector<at::Tensor> tensors(terms.begin(), terms.end());
    return device.ops->max_of(device.stream, tensors, out);
  }
  at::Tensor most = terms[0].tensor();
  for (std::size_t i = 1; i < terms.size(); ++i) most = at::maximum(most, terms[i].tensor());
  out.copy_(most);
}

}  // namespace strata
