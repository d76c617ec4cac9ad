// Products and sums are separate operations that the compiler must not contract
// (cmake/toolchain.cmake): a fused multiply-add exists on some targets only and rounds once. The
// end of a range uses padded vectors and the same operations.
#include "strata/optim/update_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/optim/update_kernels.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h, which sets the target.
#include "strata/nn/kernels/element-inl.h"
#include "strata/optim/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = FloatTag;
using V = FloatVector;
using Wide = hn::RebindToUnsigned<D>;

// ---- Rules: compute the new weight from weight and gradient; change slots in place.

struct AdamWRule {
  static constexpr int kSlots = 2;
  static constexpr bool kReadsBf16 = true;
  UpdateStep step;
  float kept;

  AdamWRule(const UpdateStep& s, bool decayed) : step(s), kept(decayed ? s.kept : 1.0f) {}

  HWY_INLINE V operator()(V w, V g, V& mean, V& square) const {
    const D d;
    const V direction = adam_direction(d, step, g, mean, square);
    return hn::Sub(hn::Mul(w, hn::Set(d, kept)), direction);
  }
};

template <int kNumSlots>
struct SgdRule {
  static constexpr int kSlots = kNumSlots;
  static constexpr bool kReadsBf16 = false;
  float momentum, size, penalty;

  SgdRule(const UpdateStep& s, bool decayed)
      : momentum(s.momentum), size(s.size), penalty(decayed ? s.penalty : 0.0f) {}

  HWY_INLINE V operator()(V w, V g, V& velocity, V& /*none*/) const {
    const D d;
    g = penalised(d, g, w, penalty);
    if constexpr (kSlots > 0) g = velocity = hn::Add(hn::Mul(hn::Set(d, momentum), velocity), g);
    return hn::Sub(w, hn::Mul(hn::Set(d, size), g));
  }
};

struct AdagradRule {
  static constexpr int kSlots = 1;
  static constexpr bool kReadsBf16 = false;
  float size, epsilon, penalty;

  AdagradRule(const UpdateStep& s, bool decayed)
      : size(s.size), epsilon(s.epsilon), penalty(decayed ? s.penalty : 0.0f) {}

  HWY_INLINE V operator()(V w, V g, V& sum, V& /*none*/) const {
    const D d;
    g = penalised(d, g, w, penalty);
    sum = hn::Add(sum, hn::Mul(g, g));
    const V root = hn::Add(hn::Sqrt(sum), hn::Set(d, epsilon));
    return hn::Sub(w, hn::Div(hn::Mul(hn::Set(d, size), g), root));
  }
};

// Elements: one cache line of a 16-bit array, two of fp32.
constexpr std::int64_t kLine = 32;
// Prefetch distance in elements: hardware prefetchers look less far ahead; with it two cores with
// AVX-512 update 1.4 instead of 1.1 G elements a second.
constexpr std::int64_t kAhead = 512;

// Ranges of at least so many elements write their copy around the cache, because the cache would
// lose it before its next read. This saves reading the overwritten lines (a tenth of the time).
constexpr std::int64_t kLeastAroundCache = 1 << 22;

template <typename T>
HWY_INLINE void prefetch(const T* array, std::int64_t i) {
  for (std::int64_t k = 0; k < kLine; k += 64 / sizeof(T)) hwy::Prefetch(array + i + k);
}

// ---- Weights: load and store n elements from i on.

struct Fp32Weights {
  float* weights;
  HWY_INLINE void prefetch_line(std::int64_t i) const { prefetch(weights, i); }
  HWY_INLINE V load(std::int64_t i, std::int64_t n) const { return load_partial(weights + i, n); }
  HWY_INLINE void store(V w, std::int64_t i, std::int64_t n) const {
    store_partial(w, weights + i, n);
  }
};

struct RoundedWeights {
  float* weights;
  Bf16* rounded;
  bool around_cache;

  HWY_INLINE void prefetch_line(std::int64_t i) const { prefetch(weights, i); }
  HWY_INLINE V load(std::int64_t i, std::int64_t n) const { return load_partial(weights + i, n); }
  HWY_INLINE void store(V w, std::int64_t i, std::int64_t n) const {
    store_partial(w, weights + i, n);
    if (!stream(w, rounded + i, n)) store_partial(w, rounded + i, n);
  }

  // Returns false if it cannot: streams of less than 16 bytes would overwrite the following
  // elements.
  HWY_INLINE bool stream(V w, Bf16* to, std::int64_t n) const {
    const hn::Rebind<std::uint16_t, D> narrow;
    constexpr std::size_t kBytes = hn::MaxLanes(D()) * sizeof(Bf16);
    if (kBytes < 16 || !around_cache) return false;
    if (n != static_cast<std::int64_t>(hn::Lanes(D()))) return false;
    if (reinterpret_cast<std::uintptr_t>(to) % kBytes != 0) return false;
    HWY_ALIGN Bf16 vector[HWY_MAX_BYTES / sizeof(float)];
    HWY_NAMESPACE::store(w, D(), vector);
    hn::Stream(hn::Load(narrow, reinterpret_cast<const std::uint16_t*>(vector)), narrow,
               reinterpret_cast<std::uint16_t*>(to));
    return true;
  }
};

// Sums and shifts wrap at 32 bits, so they are right even if the upper half is 0 or 0xFFFF.
struct HalvedWeights {
  using Narrow = hn::Rebind<std::uint16_t, D>;
  SplitWeights split;

  HWY_INLINE static V join(const std::uint16_t* high, const std::uint16_t* low) {
    const Wide wide;
    const auto lower = hn::PromoteTo(wide, hn::LoadU(Narrow(), low));
    const auto upper =
        hn::Sub(hn::PromoteTo(wide, hn::LoadU(Narrow(), high)), hn::ShiftRight<15>(lower));
    return hn::BitCast(D(), hn::Or(hn::ShiftLeft<16>(upper), lower));
  }

  // Stores values below 2^16.
  HWY_INLINE static void store_halves(hn::Vec<Wide> halves, std::uint16_t* to) {
    const hn::RebindToSigned<D> whole;
    hn::StoreU(hn::DemoteTo(Narrow(), hn::BitCast(whole, halves)), Narrow(), to);
  }

  HWY_INLINE static void cut(V w, std::uint16_t* high, std::uint16_t* low) {
    const Wide wide;
    const auto bits = hn::BitCast(wide, w);
    store_halves(hn::ShiftRight<16>(hn::Add(bits, hn::Set(wide, 0x8000u))), high);
    store_halves(hn::And(bits, hn::Set(wide, 0xFFFFu)), low);
  }

  HWY_INLINE void prefetch_line(std::int64_t i) const {
    prefetch(split.high, i);
    prefetch(split.low, i);
  }

  HWY_INLINE V load(std::int64_t i, std::int64_t n) const {
    if (n == static_cast<std::int64_t>(hn::Lanes(D()))) return join(split.high + i, split.low + i);
    HWY_ALIGN std::uint16_t high[HWY_MAX_BYTES / sizeof(float)] = {}, low[sizeof(high) / 2] = {};
    std::memcpy(high, split.high + i, n * sizeof(*high));
    std::memcpy(low, split.low + i, n * sizeof(*low));
    return join(high, low);
  }

  HWY_INLINE void store(V w, std::int64_t i, std::int64_t n) const {
    if (n == static_cast<std::int64_t>(hn::Lanes(D())))
      return cut(w, split.high + i, split.low + i);
    HWY_ALIGN std::uint16_t high[HWY_MAX_BYTES / sizeof(float)], low[sizeof(high) / 2];
    cut(w, high, low);
    std::memcpy(split.high + i, high, n * sizeof(*high));
    std::memcpy(split.low + i, low, n * sizeof(*low));
  }
};

// ---- The pass

template <typename Rule, typename Weights, typename T>
HWY_INLINE void update_vector(const Rule& rule, const Weights& weights, const T* gradients,
                              float* const* slots, V factor, std::int64_t i, std::int64_t n) {
  V first = hn::Zero(D()), second = first;
  if constexpr (Rule::kSlots > 0) first = load_partial(slots[0] + i, n);
  if constexpr (Rule::kSlots > 1) second = load_partial(slots[1] + i, n);
  const V gradient = hn::Mul(load_partial(gradients + i, n), factor);
  const V updated = rule(weights.load(i, n), gradient, first, second);
  weights.store(one_nan(D(), updated), i, n);
  if constexpr (Rule::kSlots > 0) store_partial(one_nan(D(), first), slots[0] + i, n);
  if constexpr (Rule::kSlots > 1) store_partial(one_nan(D(), second), slots[1] + i, n);
}

template <typename Rule, typename Weights, typename T>
HWY_NOINLINE void update_range(const Rule rule, const Weights weights, const T* gradients,
                               float* const* slots, float factor, FlatRange range) {
  const V scale = hn::Set(D(), factor);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(D()));
  static_assert(kLine % hn::MaxLanes(D()) == 0);
  std::int64_t i = range.begin;
  for (; i + kLine <= range.end; i += kLine) {
    prefetch(gradients, i + kAhead);
    for (int slot = 0; slot < Rule::kSlots; ++slot) prefetch(slots[slot], i + kAhead);
    weights.prefetch_line(i + kAhead);
    for (std::int64_t k = 0; k < kLine; k += lanes)
      update_vector(rule, weights, gradients, slots, scale, i + k, lanes);
  }
  for (; i + lanes <= range.end; i += lanes)
    update_vector(rule, weights, gradients, slots, scale, i, lanes);
  if (i < range.end) update_vector(rule, weights, gradients, slots, scale, i, range.end - i);
}

template <typename Rule, typename Weights, typename T>
void update_decayed_then_rest(const UpdateStep& step, const UpdateArrays& arrays, Weights weights,
                              const T* gradients, FlatRange range) {
  const std::int64_t edge = std::clamp(arrays.decay_numel, range.begin, range.end);
  update_range(Rule(step, true), weights, gradients, arrays.slots, step.gradient_factor,
               {range.begin, edge});
  update_range(Rule(step, false), weights, gradients, arrays.slots, step.gradient_factor,
               {edge, range.end});
}

template <typename Rule, typename Weights>
void update_weights(const UpdateStep& step, const UpdateArrays& arrays, Weights weights,
                    FlatRange range) {
  if constexpr (Rule::kReadsBf16) {
    if (arrays.gradient_element == Element::kBf16)
      return update_decayed_then_rest<Rule>(step, arrays, weights,
                                            static_cast<const Bf16*>(arrays.gradients), range);
  }
  update_decayed_then_rest<Rule>(step, arrays, weights, static_cast<const float*>(arrays.gradients),
                                 range);
}

template <typename Rule>
void update_by(const UpdateStep& step, const UpdateArrays& arrays, FlatRange range) {
  if (arrays.split.high)
    return update_weights<Rule>(step, arrays, HalvedWeights{arrays.split}, range);
  if (!arrays.rounded)
    return update_weights<Rule>(step, arrays, Fp32Weights{arrays.weights}, range);
  const bool around_cache = range.size() >= kLeastAroundCache;
  update_weights<Rule>(
      step, arrays,
      RoundedWeights{arrays.weights, static_cast<Bf16*>(arrays.rounded), around_cache}, range);
  if (around_cache) hwy::FlushStream();
}

void Update(const UpdateStep& step, const UpdateArrays& arrays, FlatRange range) {
  switch (step.rule) {
    case UpdateRule::kAdamW:
      return update_by<AdamWRule>(step, arrays, range);
    case UpdateRule::kSgd:
      return update_by<SgdRule<0>>(step, arrays, range);
    case UpdateRule::kSgdMomentum:
      return update_by<SgdRule<1>>(step, arrays, range);
    case UpdateRule::kAdagrad:
      return update_by<AdagradRule>(step, arrays, range);
  }
}

void Split(const float* weights, SplitWeights split, std::int64_t n) {
  const HalvedWeights halves{split};
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    halves.store(one_nan(D(), load_partial(weights + i, count)), i, count);
  });
}

void Join(SplitWeights split, float* weights, std::int64_t n) {
  const HalvedWeights halves{split};
  for_each_partial(n, [&](std::int64_t i, std::int64_t count) {
    store_partial(halves.load(i, count), weights + i, count);
  });
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(Update);
HWY_EXPORT(Split);
HWY_EXPORT(Join);

namespace {

// Arrays whose element 0 is element `begin` of `arrays`.
UpdateArrays from(UpdateArrays arrays, std::int64_t begin) {
  const auto advance = [&](auto*& pointer) {
    if (pointer) pointer += begin;
  };
  const auto bytes = [&](Element element) { return begin * (element == Element::kFp32 ? 4 : 2); };
  advance(arrays.weights);
  advance(arrays.split.high);
  advance(arrays.split.low);
  for (float*& slot : arrays.slots) advance(slot);
  arrays.gradients = static_cast<const char*>(arrays.gradients) + bytes(arrays.gradient_element);
  if (arrays.rounded)
    arrays.rounded = static_cast<char*>(arrays.rounded) + bytes(arrays.rounded_element);
  arrays.decay_numel -= begin;
  return arrays;
}

// Forms without a kernel of their own: widens gradients and rounds weights block by block in the L1
// cache.
void update_blocks(const UpdateStep& step, const UpdateArrays& arrays, FlatRange range) {
  constexpr std::int64_t kBlock = 1024;
  float gradients[kBlock];
  for (std::int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, range.end - begin);
    UpdateArrays block = from(arrays, begin);
    widen(block.gradient_element, block.gradients, gradients, n);
    block.gradients = gradients;
    block.gradient_element = Element::kFp32;
    void* const rounded = std::exchange(block.rounded, nullptr);
    HWY_DYNAMIC_DISPATCH(Update)(step, block, {0, n});
    if (rounded) narrow(block.rounded_element, block.weights, rounded, n);
  }
}

}  // namespace

void update(const UpdateStep& step, const UpdateArrays& arrays, FlatRange range) {
  const bool reads = arrays.gradient_element == Element::kFp32 ||
                     (arrays.gradient_element == Element::kBf16 && step.rule == UpdateRule::kAdamW);
  const bool writes = !arrays.rounded || arrays.rounded_element == Element::kBf16;
  if (!reads || !writes) return update_blocks(step, arrays, range);
  HWY_DYNAMIC_DISPATCH(Update)(step, arrays, range);
}
void split_weights(const float* weights, SplitWeights split, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Split)(weights, split, n);
}
void join_weights(SplitWeights split, float* weights, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(Join)(split, weights, n);
}
}  // namespace strata::kernels
#endif
