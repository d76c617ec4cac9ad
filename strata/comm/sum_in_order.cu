#include <algorithm>

#include "strata/comm/cuda_kernels.h"
#include "strata/device/simt/simt_vector.h"

namespace strata::cuda {
namespace {

constexpr int kMost = static_cast<int>(kTermsInAPass);

// to = before + terms..., before null: terms alone. To: T, or float between passes.
template <typename T, typename To>
struct SumInOrder {
  static constexpr int kThreads = 256;
  const T* terms[kMost];
  int count;
  const float* before;
  To* to;
  std::int64_t n;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    constexpr int kOwn = simt::kWide<T>;
    bool whole = simt::lie_whole(before, to);
    STRATA_UNROLL
    for (int t = 0; t < kMost; ++t) whole = whole && (t >= count || simt::lie_whole(terms[t]));
    simt::each_vector<T>(block, n, whole, [&](std::int64_t i, auto left) {
      simt::Packed<T, kOwn> read[kMost];
      STRATA_UNROLL
      for (int t = 0; t < kMost; ++t)
        if (t < count) read[t] = simt::fetch<kOwn>(terms[t] + i, left);
      auto sum = before ? simt::load<kOwn>(before + i, left) : simt::widened(read[0]);
      STRATA_UNROLL
      for (int t = 0; t < kMost; ++t) {
        if (t >= count || (t == 0 && !before)) continue;
        const auto term = simt::widened(read[t]);
        STRATA_UNROLL
        for (int k = 0; k < kOwn; ++k) sum[k] += term[k];
      }
      simt::store(sum, to + i, left);
    });
  }
};

struct SumDoubles {
  static constexpr int kThreads = 256;
  const double* terms[kMost];
  int count;
  const double* before;
  double* to;
  std::int64_t n;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index() * kThreads + thread;
      if (i >= n) return;
      double sum = before ? before[i] : terms[0][i];
      STRATA_UNROLL
      for (int t = 0; t < kMost; ++t)
        if (t < count && (t > 0 || before)) sum += terms[t][i];
      to[i] = sum;
    });
  }
};

// Calls pass(terms of it, whether it is the first, whether it is the last).
template <typename Term, typename Pass>
void each_pass(std::span<const Term> terms, Pass pass) {
  for (std::size_t begin = 0; begin < terms.size(); begin += kTermsInAPass) {
    const auto some = terms.subspan(begin, std::min(kTermsInAPass, terms.size() - begin));
    pass(some, begin == 0, begin + some.size() == terms.size());
  }
}

template <typename T, typename To>
void launch_pass(std::span<const void* const> terms, const float* before, To* to, std::int64_t n,
                 void* stream) {
  SumInOrder<T, To> kernel{{}, static_cast<int>(terms.size()), before, to, n};
  for (std::size_t t = 0; t < terms.size(); ++t) kernel.terms[t] = static_cast<const T*>(terms[t]);
  simt::launch(kernel, simt::vector_blocks<T>(n, kernel.kThreads), stream);
}

}  // namespace

void sum_in_order(kernels::Element element, std::span<const void* const> terms, void* out,
                  std::int64_t n, float* workspace, void* stream) {
  STRATA_CHECK(!terms.empty(), "comm.sum");
  STRATA_WITH_ELEMENT(element, {
    T* to = static_cast<T*>(out);
    float* between = element == kernels::Element::kFp32 ? static_cast<float*>(out) : workspace;
    STRATA_CHECK(terms.size() <= kTermsInAPass || between, "comm.sum");
    each_pass(terms, [&](std::span<const void* const> some, bool first, bool last) {
      const float* before = first ? nullptr : between;
      if (last) {
        launch_pass<T>(some, before, to, n, stream);
      } else {
        launch_pass<T>(some, before, between, n, stream);
      }
    });
  });
}

void sum_in_order(std::span<const double* const> terms, double* out, std::int64_t n, void* stream) {
  STRATA_CHECK(!terms.empty(), "comm.sum");
  each_pass(terms, [&](std::span<const double* const> some, bool first, bool) {
    SumDoubles kernel{{}, static_cast<int>(some.size()), first ? nullptr : out, out, n};
    std::copy(some.begin(), some.end(), kernel.terms);
    simt::launch(kernel, simt::blocks_for(n, SumDoubles::kThreads), stream);
  });
}

}  // namespace strata::cuda
