/// Divides ranges into vectors, and has the operations on vectors that several optimizers share.
/// Included once per Highway target.
#include <cstdint>

#if defined(STRATA_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef STRATA_VECTORS_INL_H
#undef STRATA_VECTORS_INL_H
#else
#define STRATA_VECTORS_INL_H
#endif

#include "hwy/highway.h"
#include "strata/optim/update_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

/// Calls f(tag, element) for whole vectors, then for single elements.
template <typename F>
HWY_INLINE void for_vectors(std::int64_t n, F f) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i);
  for (; i < n; ++i) f(hwy::HWY_NAMESPACE::CappedTag<float, 1>(), i);
}

/// An operation on two NaNs returns the bits of either, as the compiler orders them; this returns
/// 0x7FC00000 for every NaN.
template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> one_nan(D d, hwy::HWY_NAMESPACE::Vec<D> x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const auto nan = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), 0x7FC00000u));
  return hn::IfThenElse(hn::IsNaN(x), nan, x);
}

template <typename D>
HWY_INLINE void store_one_nan(D d, hwy::HWY_NAMESPACE::Vec<D> x, float* to) {
  hwy::HWY_NAMESPACE::StoreU(one_nan(d, x), d, to);
}

/// sqrt(square) root_scale + epsilon
template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> divisor(D d, hwy::HWY_NAMESPACE::Vec<D> square,
                                              float root_scale, float epsilon) {
  namespace hn = hwy::HWY_NAMESPACE;
  return hn::Add(hn::Mul(hn::Sqrt(square), hn::Set(d, root_scale)), hn::Set(d, epsilon));
}

/// x + penalty w. Without a penalty, 0 * w would turn an infinite weight into NaN.
template <typename D>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> penalised(D d, hwy::HWY_NAMESPACE::Vec<D> x,
                                                hwy::HWY_NAMESPACE::Vec<D> w, float penalty) {
  namespace hn = hwy::HWY_NAMESPACE;
  return penalty == 0 ? x : hn::Add(x, hn::Mul(hn::Set(d, penalty), w));
}

/// Moves AdamW's mean and mean square by a gradient and returns size mean / divisor(square).
template <typename D, typename V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE V adam_direction(D d, const UpdateStep& step, V g, V& mean, V& square) {
  namespace hn = hwy::HWY_NAMESPACE;
  mean =
      hn::Add(hn::Mul(hn::Set(d, step.mean_kept), mean), hn::Mul(hn::Set(d, step.mean_share), g));
  square = hn::Add(hn::Mul(hn::Set(d, step.square_kept), square),
                   hn::Mul(hn::Mul(hn::Set(d, step.square_share), g), g));
  return hn::Div(hn::Mul(hn::Set(d, step.size), mean),
                 divisor(d, square, step.root_scale, step.epsilon));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
