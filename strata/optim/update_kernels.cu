// A thread updates four elements, so every fp32 array has 16 bytes in flight. Which arrays exist is
// the same for all threads and is tested at run time; only the rule is a template argument.
// Operations, their order and NaNs are those of update_kernels.cpp.
#include "strata/device/simt/simt_vector.h"
#include "strata/device/step_scalars.h"
#include "strata/optim/cuda_kernels.h"

namespace strata::cuda {
namespace {

using kernels::Bf16;
using kernels::Element;
using kernels::Fp16;
using kernels::num_slots;
using kernels::SplitWeights;
using kernels::UpdateArrays;
using kernels::UpdateRule;
using kernels::UpdateStep;
using simt::bits_as;
using simt::load;
using simt::store;

constexpr int kOwn = 4;  // elements per thread
using Vector = simt::Floats<kOwn>;

STRATA_DEVICE float one_nan(float x) { return x != x ? bits_as<float>(0x7FC00000u) : x; }
STRATA_DEVICE Vector one_nan(const Vector& x) {
  return simt::floats<kOwn>([&](int k) { return one_nan(x[k]); });
}

// Returns the new weight; changes slots in place.
template <UpdateRule kRule>
STRATA_DEVICE float updated(const UpdateStep& s, bool decayed, float w, float g, float& first,
                            float& second) {
  if constexpr (kRule == UpdateRule::kAdamW) {
    first = s.mean_kept * first + s.mean_share * g;
    second = s.square_kept * second + s.square_share * g * g;
    const float root = sqrtf(second) * s.root_scale + s.epsilon;
    return w * (decayed ? s.kept : 1.0f) - s.size * first / root;
  }
  // 0 * w would turn an infinite weight into NaN.
  if (decayed && s.penalty != 0) g = g + s.penalty * w;
  if constexpr (kRule == UpdateRule::kSgdMomentum) g = first = s.momentum * first + g;
  if constexpr (kRule != UpdateRule::kAdagrad) return w - s.size * g;
  first = first + g * g;
  return w - s.size * g / (sqrtf(first) + s.epsilon);
}

template <typename Left>
STRATA_DEVICE Vector join(const SplitWeights& split, std::int64_t i, Left left) {
  const auto high = simt::fetch<kOwn>(split.high + i, left);
  const auto low = simt::fetch<kOwn>(split.low + i, left);
  return simt::floats<kOwn>([&](int k) {
    const std::uint32_t lower = low.get(k), upper = std::uint32_t{high.get(k)} - (lower >> 15);
    return bits_as<float>(upper << 16 | lower);
  });
}

template <typename Left>
STRATA_DEVICE void cut(const Vector& w, const SplitWeights& split, std::int64_t i, Left left) {
  const auto high = simt::packed<std::uint16_t, kOwn>([&](int k) {
    return static_cast<std::uint16_t>((bits_as<std::uint32_t>(w[k]) + 0x8000u) >> 16);
  });
  const auto low = simt::packed<std::uint16_t, kOwn>(
      [&](int k) { return static_cast<std::uint16_t>(bits_as<std::uint32_t>(w[k])); });
  simt::put(high, split.high + i, left);
  simt::put(low, split.low + i, left);
}

template <typename Left>
STRATA_DEVICE Vector load_as(Element element, const void* from, std::int64_t i, Left left) {
  if (element == Element::kFp32) return load<kOwn>(static_cast<const float*>(from) + i, left);
  if (element == Element::kBf16) return load<kOwn>(static_cast<const Bf16*>(from) + i, left);
  return load<kOwn>(static_cast<const Fp16*>(from) + i, left);
}

template <typename Left>
STRATA_DEVICE void store_half_as(Element element, const Vector& x, void* to, std::int64_t i,
                                 Left left) {
  if (element == Element::kBf16) {
    store(x, static_cast<Bf16*>(to) + i, left);
  } else {
    store(x, static_cast<Fp16*>(to) + i, left);
  }
}

template <UpdateRule kRule>
struct Update {
  static constexpr int kThreads = 256, kSlots = num_slots(kRule);
  const UpdateStep* step;
  UpdateArrays arrays;
  std::int64_t n;
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t i = (block.index() * kThreads + thread) * kOwn;
      if (i >= n || scalars->skip != 0) return;
      lie_whole() && n - i >= kOwn ? update(i, simt::Whole(n - i)) : update(i, n - i);
    });
  }

  STRATA_DEVICE bool lie_whole() const {
    bool whole = simt::lie_whole(arrays.weights, arrays.split.high, arrays.split.low,
                                 static_cast<const char*>(arrays.gradients),
                                 static_cast<const char*>(arrays.rounded));
    STRATA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) whole = whole && simt::lie_whole(arrays.slots[slot]);
    return whole;
  }

  template <typename Left>
  STRATA_DEVICE void update(std::int64_t i, Left left) const {
    const UpdateStep s = *step;
    const Vector gradient = load_as(arrays.gradient_element, arrays.gradients, i, left);
    Vector w =
        arrays.split.high ? join(arrays.split, i, left) : load<kOwn>(arrays.weights + i, left);
    Vector first = simt::zeros<kOwn>(), second = first;
    if constexpr (kSlots > 0) first = load<kOwn>(arrays.slots[0] + i, left);
    if constexpr (kSlots > 1) second = load<kOwn>(arrays.slots[1] + i, left);
    STRATA_UNROLL
    for (int k = 0; k < kOwn; ++k)
      w[k] = updated<kRule>(s, i + k < arrays.decay_numel, w[k], gradient[k] * s.gradient_factor,
                            first[k], second[k]);
    w = one_nan(w);
    if (arrays.split.high) {
      cut(w, arrays.split, i, left);
    } else {
      store(w, arrays.weights + i, left);
    }
    if (arrays.rounded) store_half_as(arrays.rounded_element, w, arrays.rounded, i, left);
    if constexpr (kSlots > 0) store(one_nan(first), arrays.slots[0] + i, left);
    if constexpr (kSlots > 1) store(one_nan(second), arrays.slots[1] + i, left);
  }
};

template <UpdateRule kRule>
void launch_update(const UpdateStep* step, const UpdateArrays& arrays, std::int64_t n,
                   const StepScalars* scalars, void* stream) {
  simt::launch(Update<kRule>{step, arrays, n, scalars},
               simt::blocks_for(n, std::int64_t{Update<kRule>::kThreads} * kOwn), stream);
}

}  // namespace

void update(UpdateRule rule, const UpdateStep* step, const UpdateArrays& arrays, std::int64_t n,
            const StepScalars* scalars, void* stream) {
  switch (rule) {
    case UpdateRule::kAdamW:
      return launch_update<UpdateRule::kAdamW>(step, arrays, n, scalars, stream);
    case UpdateRule::kSgd:
      return launch_update<UpdateRule::kSgd>(step, arrays, n, scalars, stream);
    case UpdateRule::kSgdMomentum:
      return launch_update<UpdateRule::kSgdMomentum>(step, arrays, n, scalars, stream);
    case UpdateRule::kAdagrad:
      return launch_update<UpdateRule::kAdagrad>(step, arrays, n, scalars, stream);
  }
}

}  // namespace strata::cuda
