#include "strata/optim/lamb_kernels.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/lamb_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/optim/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void FindDirections(const UpdateStep& step, const float* weights, float* gradients, float* means,
                    float* squares, std::int64_t n) {
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto g = hn::Mul(hn::LoadU(d, gradients + i), hn::Set(d, step.gradient_factor));
    auto mean = hn::LoadU(d, means + i), square = hn::LoadU(d, squares + i);
    const auto adam = adam_direction(d, step, g, mean, square);
    store_one_nan(d, mean, means + i);
    store_one_nan(d, square, squares + i);
    store_one_nan(d, penalised(d, adam, hn::LoadU(d, weights + i), step.penalty), gradients + i);
  });
}

void MoveByDirections(float rate, const float* directions, float* weights, std::int64_t n) {
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto move = hn::Mul(hn::Set(d, rate), hn::LoadU(d, directions + i));
    store_one_nan(d, hn::Sub(hn::LoadU(d, weights + i), move), weights + i);
  });
}

// Compares the bits of factors as integers, which have the order of the factors, as none is
// negative. The bits of a NaN are the largest.
float RefreshVariances(const OneBitStep& step, const FreshStep& fresh_step, const float* directions,
                       const float* momenta, const float* variances, float* fresh, std::int64_t n) {
  const hn::ScalableTag<std::int32_t> wide;
  auto largest = hn::Zero(wide);
  std::int32_t rest = 0;
  for_vectors(n, [&](auto d, std::int64_t i) {
    const auto by = divisor(d, hn::LoadU(d, variances + i), step.root_scale, step.epsilon);
    const auto moved = hn::Sub(hn::Mul(hn::LoadU(d, directions + i), by),
                               hn::Mul(hn::Set(d, step.momentum_kept), hn::LoadU(d, momenta + i)));
    const auto g = hn::Mul(hn::Set(d, fresh_step.gradient_scale), moved);
    const auto square =
        hn::Add(hn::Mul(hn::Set(d, fresh_step.square_kept), hn::LoadU(d, fresh + i)),
                hn::Mul(hn::Mul(hn::Set(d, fresh_step.square_share), g), g));
    store_one_nan(d, square, fresh + i);
    const auto factor = hn::Div(by, divisor(d, square, fresh_step.root_scale, step.epsilon));
    const hn::RebindToSigned<decltype(d)> whole;
    const auto bits = hn::BitCast(whole, one_nan(d, factor));
    if constexpr (std::is_same_v<decltype(whole), decltype(wide)>)
      largest = hn::Max(largest, bits);
    else
      rest = std::max(rest, hn::GetLane(bits));
  });
  return std::bit_cast<float>(std::max(rest, hn::GetLane(hn::MaxOfLanes(wide, largest))));
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(FindDirections);
HWY_EXPORT(MoveByDirections);
HWY_EXPORT(RefreshVariances);

void find_directions(const UpdateStep& step, const float* weights, float* gradients, float* means,
                     float* squares, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(FindDirections)(step, weights, gradients, means, squares, n);
}

void move_by_directions(float rate, const float* directions, float* weights, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(MoveByDirections)(rate, directions, weights, n);
}

float refresh_variances(const OneBitStep& step, const FreshStep& fresh_step,
                        const float* directions, const float* momenta, const float* variances,
                        float* fresh, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(RefreshVariances)(step, fresh_step, directions, momenta, variances,
                                                fresh, n);
}

}  // namespace strata::kernels
#endif
