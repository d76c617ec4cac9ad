// Every vector lane runs Philox for its own counter; the four words of each counter are
// interleaved, so that element e gets word e % 4 of counter e / 4, as in the scalar form.
#include "strata/base/philox.h"
#include "strata/nn/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/nn/kernels/dropout.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DU = hn::ScalableTag<std::uint32_t>;
using VU = hn::Vec<DU>;

// High and low words of a * b, per vector lane.
HWY_INLINE void multiply(DU du, VU a, VU b, VU& high, VU& low) {
#if HWY_TARGET == HWY_SCALAR  // it has no wider lanes; g++ compiles it
  const std::uint64_t product = std::uint64_t{hn::GetLane(a)} * hn::GetLane(b);
  low = hn::Set(du, static_cast<std::uint32_t>(product));
  high = hn::Set(du, static_cast<std::uint32_t>(product >> 32));
#else
  const hn::RepartitionToWide<DU> dw;
  const VU even = hn::BitCast(du, hn::MulEven(a, b));
  const VU odd =
      hn::BitCast(du, hn::MulEven(hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dw, a))),
                                  hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dw, b)))));
  low = hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(hn::BitCast(dw, odd))), even);
  high = hn::OddEven(odd, hn::BitCast(du, hn::ShiftRight<32>(hn::BitCast(dw, even))));
#endif
}

// One Philox counter per vector lane; words[k] holds word k of every lane's block.
HWY_INLINE void philox_lanes(DU du, VU first, std::uint32_t sample, std::uint32_t site,
                             std::uint64_t key, VU (&words)[4]) {
  VU c0 = first, c1 = hn::Set(du, sample), c2 = hn::Set(du, site), c3 = hn::Zero(du);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  const VU m0 = hn::Set(du, 0xD2511F53u), m1 = hn::Set(du, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    VU high0, low0, high1, low1;
    multiply(du, c0, m0, high0, low0);
    multiply(du, c2, m1, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(du, k0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(du, k1));
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

template <typename T>
void dropout_add_of(const T* residual, const T* x, T* y, const DropoutMask& mask,
                    std::uint32_t sample, std::int64_t begin, std::int64_t n) {
  const DU du;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(du));
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(mask.key),
                                            static_cast<std::uint32_t>(mask.key >> 32)};
  HWY_ALIGN std::uint32_t words[4 * HWY_MAX_BYTES / sizeof(std::uint32_t)];
  std::int64_t i = 0;
  const auto apply = [&](std::int64_t e, std::uint32_t word) HWY_ATTR {
    const float kept = word >= mask.threshold ? get(x + e) * mask.scale : 0.0f;
    put(residual ? get(residual + e) + kept : kept, y + e);
  };
  const FloatTag df;
  const FloatVector scale = hn::Set(df, mask.scale);
  const VU threshold = hn::Set(du, mask.threshold);
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const VU first = hn::Iota(du, static_cast<std::uint32_t>((begin + i) / 4));
    VU drawn[4];
    philox_lanes(du, first, sample, mask.site, mask.key, drawn);
    hn::StoreInterleaved4(drawn[0], drawn[1], drawn[2], drawn[3], du, words);
    for (std::int64_t e = 0; e < 4 * lanes; e += lanes) {
      const auto dropped = hn::RebindMask(df, hn::Lt(hn::Load(du, words + e), threshold));
      const FloatVector kept = hn::IfThenZeroElse(dropped, hn::Mul(load(df, x + i + e), scale));
      store(residual ? hn::Add(load(df, residual + i + e), kept) : kept, df, y + i + e);
    }
  }
  for (; i < n; i += 4) {
    const PhiloxBlock block =
        philox({static_cast<std::uint32_t>((begin + i) / 4), sample, mask.site, 0}, key);
    for (std::int64_t e = i; e < n && e < i + 4; ++e) apply(e, block[e - i]);
  }
}

void DropoutAdd(Element element, const void* residual, const void* x, void* y,
                const DropoutMask& mask, std::uint32_t sample, std::int64_t begin, std::int64_t n) {
  STRATA_WITH_ELEMENT(element,
                      dropout_add_of(static_cast<const T*>(residual), static_cast<const T*>(x),
                                     static_cast<T*>(y), mask, sample, begin, n));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(DropoutAdd);

void dropout_add(Element element, const void* residual, const void* x, void* y,
                 const DropoutMask& mask, std::uint32_t sample, std::int64_t begin,
                 std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(DropoutAdd)(element, residual, x, y, mask, sample, begin, n);
}
}  // namespace strata::kernels
#endif
