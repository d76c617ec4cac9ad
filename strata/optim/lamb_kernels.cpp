#include "strata/optim/lamb_kernels.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/lamb_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f(tag, element) for whole vectors, then for single elements.
template <typename F>
HWY_INLINE void for_each_vector(std::int64_t n, F f) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i);
  for (; i < n; ++i) f(hn::CappedTag<float, 1>(), i);
}

void FindDirections(const UpdateStep& step, const float* weights, float* gradients, float* means,
                    float* squares, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) {
    const auto g = hn::Mul(hn::LoadU(d, gradients + i), hn::Set(d, step.gradient_factor));
    const auto mean = hn::Add(hn::Mul(hn::Set(d, step.mean_kept), hn::LoadU(d, means + i)),
                              hn::Mul(hn::Set(d, step.mean_share), g));
    const auto square = hn::Add(hn::Mul(hn::Set(d, step.square_kept), hn::LoadU(d, squares + i)),
                                hn::Mul(hn::Mul(hn::Set(d, step.square_share), g), g));
    const auto root =
        hn::Add(hn::Mul(hn::Sqrt(square), hn::Set(d, step.root_scale)), hn::Set(d, step.epsilon));
    const auto adam = hn::Div(hn::Mul(hn::Set(d, step.size), mean), root);
    hn::StoreU(mean, d, means + i);
    hn::StoreU(square, d, squares + i);
    hn::StoreU(hn::Add(adam, hn::Mul(hn::Set(d, step.penalty), hn::LoadU(d, weights + i))), d,
               gradients + i);
  });
}

void MoveByDirections(float rate, const float* directions, float* weights, std::int64_t n) {
  for_each_vector(n, [&](auto d, std::int64_t i) {
    hn::StoreU(
        hn::Sub(hn::LoadU(d, weights + i), hn::Mul(hn::Set(d, rate), hn::LoadU(d, directions + i))),
        d, weights + i);
  });
}

float RefreshVariances(const OneBitStep& step, const FreshStep& fresh_step, const float* directions,
                       const float* momenta, const float* variances, float* fresh, std::int64_t n) {
  const hn::ScalableTag<float> wide;
  auto largest = hn::Zero(wide);
  float rest = 0;
  for_each_vector(n, [&](auto d, std::int64_t i) {
    const auto epsilon = hn::Set(d, step.epsilon);
    const auto by = hn::Add(
        hn::Mul(hn::Sqrt(hn::LoadU(d, variances + i)), hn::Set(d, step.root_scale)), epsilon);
    const auto moved = hn::Sub(hn::Mul(hn::LoadU(d, directions + i), by),
                               hn::Mul(hn::Set(d, step.momentum_kept), hn::LoadU(d, momenta + i)));
    const auto g = hn::Mul(hn::Set(d, fresh_step.gradient_scale), moved);
    const auto square =
        hn::Add(hn::Mul(hn::Set(d, fresh_step.square_kept), hn::LoadU(d, fresh + i)),
                hn::Mul(hn::Mul(hn::Set(d, fresh_step.square_share), g), g));
    hn::StoreU(square, d, fresh + i);
    const auto factor =
        hn::Div(by, hn::Add(hn::Mul(hn::Sqrt(square), hn::Set(d, fresh_step.root_scale)), epsilon));
    if constexpr (std::is_same_v<decltype(d), hn::ScalableTag<float>>)
      largest = hn::Max(largest, factor);
    else
      rest = std::max(rest, hn::GetLane(factor));
  });
  return std::max(rest, hn::GetLane(hn::MaxOfLanes(wide, largest)));
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
