#include "strata/optim/one_bit_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/one_bit_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/optim/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x within [-most, most]. Minima and maxima of NaNs depend on the instruction set.
template <typename D>
HWY_INLINE hn::Vec<D> limited(D d, hn::Vec<D> x, float most) {
  const auto limit = hn::Set(d, most);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Max(hn::Neg(limit), hn::Min(x, limit)));
}

void AddMomenta(const OneBitStep& step, const float* gradients, const float* momenta,
                const float* variances, float* sent, std::int64_t n) {
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto by = divisor(d, hn::LoadU(d, variances + i), step.root_scale, step.epsilon);
    const auto share =
        hn::Div(hn::Mul(hn::Set(d, step.gradient_share), hn::LoadU(d, gradients + i)), by);
    const auto added = limited(d, share, step.most);
    const auto kept =
        hn::Div(hn::Mul(hn::Set(d, step.momentum_kept), hn::LoadU(d, momenta + i)), by);
    store_one_nan(d, hn::Add(hn::LoadU(d, sent + i), hn::Add(kept, added)), sent + i);
  });
}

void MoveWeights(const OneBitStep& step, const float* directions, const float* variances,
                 float* momenta, float* weights, float kept, std::int64_t n) {
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto direction = hn::LoadU(d, directions + i);
    const auto by = divisor(d, hn::LoadU(d, variances + i), step.root_scale, step.epsilon);
    store_one_nan(d, hn::Mul(direction, by), momenta + i);
    store_one_nan(d,
                  hn::Sub(hn::Mul(hn::LoadU(d, weights + i), hn::Set(d, kept)),
                          hn::Mul(hn::Set(d, step.size), direction)),
                  weights + i);
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
