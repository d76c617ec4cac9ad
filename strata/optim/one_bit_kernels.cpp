#include "strata/optim/one_bit_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/one_bit_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f(tag, element) for whole vectors, then for single elements.
template <typename F>
HWY_INLINE void for_vectors(std::int64_t n, F f) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i);
  for (; i < n; ++i) f(hn::CappedTag<float, 1>(), i);
}

template <class D>
HWY_INLINE hn::Vec<D> divisor(D d, const OneBitStep& step, const float* variances) {
  return hn::Add(hn::Mul(hn::Sqrt(hn::LoadU(d, variances)), hn::Set(d, step.root_scale)),
                 hn::Set(d, step.epsilon));
}

void AddMomenta(const OneBitStep& step, const float* gradients, const float* momenta,
                const float* variances, float* sent, std::int64_t n) {
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto by = divisor(d, step, variances + i);
    const auto most = hn::Set(d, step.most);
    const auto share =
        hn::Div(hn::Mul(hn::Set(d, step.gradient_share), hn::LoadU(d, gradients + i)), by);
    const auto added = hn::Max(hn::Neg(most), hn::Min(share, most));
    const auto kept =
        hn::Div(hn::Mul(hn::Set(d, step.momentum_kept), hn::LoadU(d, momenta + i)), by);
    hn::StoreU(hn::Add(hn::LoadU(d, sent + i), hn::Add(kept, added)), d, sent + i);
  });
}

void MoveWeights(const OneBitStep& step, const float* directions, const float* variances,
                 float* momenta, float* weights, float kept, std::int64_t n) {
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto direction = hn::LoadU(d, directions + i);
    hn::StoreU(hn::Mul(direction, divisor(d, step, variances + i)), d, momenta + i);
    hn::StoreU(hn::Sub(hn::Mul(hn::LoadU(d, weights + i), hn::Set(d, kept)),
                       hn::Mul(hn::Set(d, step.size), direction)),
               d, weights + i);
  });
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(AddMomenta);
HWY_EXPORT(MoveWeights);

void add_momenta(const OneBitStep& step, const float* gradients, const float* momenta,
                 const float* variances, float* sent, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(AddMomenta)(step, gradients, momenta, variances, sent, n);
}

void move_weights(const OneBitStep& step, const float* directions, const float* variances,
                  float* momenta, float* weights, float kept, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(MoveWeights)(step, directions, variances, momenta, weights, kept, n);
}

}  // namespace strata::kernels
#endif
