// Products and sums are separate operations, and the compiler may not fuse them
// (cmake/toolchain.cmake): only some targets have a fused multiply-add.
#include "strata/rowserver/rows/row_update.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/rowserver/rows/row_update.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "strata/rowserver/codec/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

HWY_INLINE V one_nan(V x) {
  const hn::RebindToUnsigned<D> words;
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(D(), hn::Set(words, 0x7FC00000u)), x);
}

// Each optimizer returns the new value and changes its states in place.

// Without a penalty nothing is added: 0 * w would be NaN for an infinite value.
HWY_INLINE V penalised(V g, V w, float penalty) {
  return penalty == 0 ? g : hn::Add(g, hn::Mul(hn::Set(D(), penalty), w));
}

struct Sgd {
  static constexpr int kStates = 0;
  HWY_INLINE V operator()(const RowUpdate& u, V w, V g, V& /*none*/, V& /*none*/) const {
    g = penalised(g, w, u.weight_decay);
    return hn::Sub(w, hn::Mul(hn::Set(D(), u.rate), g));
  }
};

struct Momentum {
  static constexpr int kStates = 1;
  HWY_INLINE V operator()(const RowUpdate& u, V w, V g, V& velocity, V& /*none*/) const {
    g = penalised(g, w, u.weight_decay);
    velocity = hn::Add(hn::Mul(hn::Set(D(), u.momentum), velocity), g);
    return hn::Sub(w, hn::Mul(hn::Set(D(), u.rate), velocity));
  }
};

struct Adagrad {
  static constexpr int kStates = 1;
  HWY_INLINE V operator()(const RowUpdate& u, V w, V g, V& sum, V& /*none*/) const {
    const D d;
    g = penalised(g, w, u.weight_decay);
    sum = hn::Add(sum, hn::Mul(g, g));
    const V root = hn::Add(hn::Sqrt(sum), hn::Set(d, u.epsilon));
    return hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, u.rate), g), root));
  }
};

// Adam adds its decay to the gradient, AdamW shrinks the value: one of the two constants has no
// effect.
struct Adam {
  static constexpr int kStates = 2;
  HWY_INLINE V operator()(const RowUpdate& u, V w, V g, V& mean, V& square) const {
    const D d;
    g = penalised(g, w, u.weight_decay);
    mean = hn::Add(hn::Mul(hn::Set(d, u.mean_kept), mean), hn::Mul(hn::Set(d, u.mean_share), g));
    square = hn::Add(hn::Mul(hn::Set(d, u.square_kept), square),
                     hn::Mul(hn::Mul(hn::Set(d, u.square_share), g), g));
    const V root =
        hn::Add(hn::Mul(hn::Sqrt(square), hn::Set(d, u.root_scale)), hn::Set(d, u.epsilon));
    return hn::Sub(hn::Mul(w, hn::Set(d, u.kept)),
                   hn::Div(hn::Mul(hn::Set(d, u.size), mean), root));
  }
};

struct Ftrl {
  static constexpr int kStates = 2;
  HWY_INLINE V operator()(const RowUpdate& u, V w, V g, V& linear, V& sum) const {
    const D d;
    const V rate = hn::Set(d, u.rate), l1 = hn::Set(d, u.l1);
    const V grown = hn::Add(sum, hn::Mul(g, g));
    const V root = hn::Sqrt(grown);
    const V sigma = hn::Div(hn::Sub(root, hn::Sqrt(sum)), rate);
    linear = hn::Sub(hn::Add(linear, g), hn::Mul(sigma, w));
    sum = grown;
    const V divisor =
        hn::Add(hn::Div(hn::Add(root, hn::Set(d, u.epsilon)), rate), hn::Set(d, u.l2));
    const V value = hn::Div(hn::Sub(hn::CopySign(l1, linear), linear), divisor);
    // Not Gt, which would drop a NaN.
    return hn::IfThenElse(hn::Le(hn::Abs(linear), l1), hn::Zero(d), value);
  }
};

template <typename Rule>
void update_by(const RowUpdate& update, const float* values, const float* gradient, float* states,
               float* out, int width) {
  const D d;
  const Rule rule;
  for_each_vector(width, [&](int i, int n) {
    V first = hn::Zero(d), second = first;
    if constexpr (Rule::kStates > 0) first = load(d, states + i, n);
    if constexpr (Rule::kStates > 1) second = load(d, states + width + i, n);
    const V value = rule(update, load(d, values + i, n), load(d, gradient + i, n), first, second);
    store(one_nan(value), d, out + i, n);
    if constexpr (Rule::kStates > 0) store(one_nan(first), d, states + i, n);
    if constexpr (Rule::kStates > 1) store(one_nan(second), d, states + width + i, n);
  });
}

// Adds element e to sum e % 16 of sixteen sums, which are then added pairwise: the order is the
// same for vectors of up to sixteen lanes.
HWY_INLINE float sum_of_squares(const RowUpdate& u, const float* values, const float* gradient,
                                int width) {
  constexpr int kSums = 16;
  const D d;
  static_assert(kSums % hn::MaxLanes(D()) == 0);
  HWY_ALIGN float sums[kSums] = {};
  for_each_vector(width, [&](int i, int n) {
    const V g = penalised(load(d, gradient + i, n), load(d, values + i, n), u.weight_decay);
    float* const to = sums + i % kSums;
    hn::Store(hn::Add(hn::Load(d, to), hn::Mul(g, g)), d, to);
  });
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

void update_row_wise(const RowUpdate& u, const float* values, const float* gradient, float* state,
                     float* out, int width) {
  const D d;
  *state += sum_of_squares(u, values, gradient, width) / static_cast<float>(width);
  if (std::isnan(*state)) *state = std::numeric_limits<float>::quiet_NaN();
  const V root = hn::Set(d, std::sqrt(*state) + u.epsilon);
  for_each_vector(width, [&](int i, int n) {
    const V w = load(d, values + i, n);
    const V g = penalised(load(d, gradient + i, n), w, u.weight_decay);
    store(one_nan(hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, u.rate), g), root))), d, out + i, n);
  });
}

void UpdateRow(const RowUpdate& update, const float* values, const float* gradient, float* states,
               float* out, int width) {
  switch (update.kind) {
    case RowOptimizerKind::kSgd:
      return update_by<Sgd>(update, values, gradient, states, out, width);
    case RowOptimizerKind::kMomentum:
      return update_by<Momentum>(update, values, gradient, states, out, width);
    case RowOptimizerKind::kAdagrad:
      return update_by<Adagrad>(update, values, gradient, states, out, width);
    case RowOptimizerKind::kRowWiseAdagrad:
      return update_row_wise(update, values, gradient, states, out, width);
    case RowOptimizerKind::kAdam:
    case RowOptimizerKind::kAdamW:
      return update_by<Adam>(update, values, gradient, states, out, width);
    case RowOptimizerKind::kFtrl:
      return update_by<Ftrl>(update, values, gradient, states, out, width);
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(UpdateRow);

void update_row(const RowUpdate& update, const float* values, const float* gradient, float* states,
                float* out, int width) {
  HWY_DYNAMIC_DISPATCH(UpdateRow)(update, values, gradient, states, out, width);
}
}  // namespace strata::kernels
#endif
