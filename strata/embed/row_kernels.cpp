// Products and sums are written apart, and the compiler may not contract them (cmake/toolchain.cmake):
// a fused multiply-add exists on some targets only. The end of a row goes through padded vectors and
// the same operations. fp16 is made of integer operations, for Highway's own of processors without
// instructions for it neither rounds nor knows infinities.
#include "strata/embed/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/embed/row_kernels.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
using Words = hn::RebindToUnsigned<D>;
using Whole = hn::RebindToSigned<D>;

HWY_INLINE V one_nan(V x) {
  const Words words;
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(D(), hn::Set(words, 0x7FC00000u)), x);
}

/// The first n lanes; the others are zero.
template <typename T, typename Tag>
HWY_INLINE hn::Vec<Tag> load(Tag d, const T* from, int n) {
  if (n == static_cast<int>(hn::Lanes(d))) return hn::LoadU(d, from);
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(padded, from, n * sizeof(T));
  return hn::LoadU(d, padded);
}

template <typename T, typename Tag>
HWY_INLINE void store(hn::Vec<Tag> v, Tag d, T* to, int n) {
  if (n == static_cast<int>(hn::Lanes(d))) return hn::StoreU(v, d, to);
  HWY_ALIGN T padded[HWY_MAX_BYTES / sizeof(float)];
  hn::StoreU(v, d, padded);
  std::memcpy(to, padded, n * sizeof(T));
}

/// Calls body(first, n) for the vectors of a row.
template <typename Body>
HWY_INLINE void for_each_vector(int width, Body body) {
  const int lanes = static_cast<int>(hn::Lanes(D()));
  int i = 0;
  for (; i + lanes <= width; i += lanes) body(i, lanes);
  if (i < width) body(i, width - i);
}

// ---- Optimizers: the new value; states change in place. ----------------------------------------------

// None is not 0 * w, which an infinite value would make NaN.
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

// Adam adds its decay to the gradient, AdamW shrinks the value: one of the two constants is neutral.
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
    // Not Gt: a NaN has to stay.
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

// Element e is added to number e % 16 of sixteen sums, which are added pair by pair: so the order is that of
// any vector up to sixteen lanes.
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

// ---- Random words ------------------------------------------------------------------------------------

// Blocks side by side, a word of each in the lower half of a 64-bit lane, where MulEven looks.
void DrawWords(std::uint64_t key, std::uint64_t id, std::uint32_t step, std::uint32_t* words,
               int count) {
  const hn::CappedTag<std::uint64_t, 8> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto lower = hn::Set(d, 0xFFFFFFFFull);
  const auto product = [&](auto x, std::uint32_t factor) {
#if HWY_TARGET == HWY_SCALAR  // which has one lane of either width; g++ compiles it
    return hn::Mul(x, hn::Set(d, factor));
#else
    const hn::Repartition<std::uint32_t, decltype(d)> narrow;
    return hn::MulEven(hn::BitCast(narrow, x), hn::Set(narrow, factor));
#endif
  };
  const auto word = [&](std::uint64_t value) { return hn::Set(d, value & 0xFFFFFFFFull); };
  for (int block = 0; block * 4 < count; block += lanes) {
    auto c0 = hn::Iota(d, static_cast<std::uint64_t>(block));
    auto c1 = word(id), c2 = word(id >> 32), c3 = word(step);
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto p0 = product(c0, 0xD2511F53u), p1 = product(c2, 0xCD9E8D57u);
      c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), word(k0));
      c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), word(k1));
      c1 = hn::And(p1, lower);
      c3 = hn::And(p0, lower);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    HWY_ALIGN std::uint64_t first[8], second[8];
    hn::Store(hn::Or(c0, hn::ShiftLeft<32>(c1)), d, first);
    hn::Store(hn::Or(c2, hn::ShiftLeft<32>(c3)), d, second);
    for (int k = 0; k < lanes; ++k) {
      std::memcpy(words + (block + k) * 4, first + k, 8);
      std::memcpy(words + (block + k) * 4 + 2, second + k, 8);
    }
  }
}

// ---- 16 bits -----------------------------------------------------------------------------------------

void RoundFp16(const float* values, const std::uint32_t* words, std::uint16_t* out, int width) {
  const D d;
  const Words wide;
  const Whole whole;
  const hn::Rebind<std::uint16_t, D> narrow;
  for_each_vector(width, [&](int i, int n) {
    const auto bits = hn::BitCast(wide, load(d, values + i, n));
    const auto drawn = load(wide, words + i, n);
    const auto magnitude = hn::And(bits, hn::Set(wide, 0x7FFFFFFFu));
    const auto above = [&](std::uint32_t limit) { return hn::Gt(magnitude, hn::Set(wide, limit)); };
    // From 2^-14 on: the bits that are cut off carry into those that stay as often as they say.
    const auto carried = hn::Add(magnitude, hn::And(drawn, hn::Set(wide, 0x1FFFu)));
    const auto normal = hn::Sub(hn::ShiftRight<13>(carried), hn::Set(wide, 112u << 10));
    // Below: multiples of 2^-24. The product and the fraction are exact.
    const V scaled = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p24f));
    const V small = hn::IfThenElse(hn::Lt(scaled, hn::Set(d, 1024.0f)), scaled, hn::Zero(d));
    const auto floor = hn::ConvertTo(whole, small);
    const V fraction = hn::Sub(small, hn::ConvertTo(d, floor));
    const V chance = hn::Mul(hn::ConvertTo(d, hn::BitCast(whole, hn::ShiftRight<8>(drawn))),
                             hn::Set(d, 0x1p-24f));
    const auto one = hn::Set(wide, 1u);
    const auto up = hn::IfThenElseZero(hn::RebindMask(wide, hn::Lt(chance, fraction)), one);
    const auto denormal = hn::Add(hn::BitCast(wide, floor), up);
    auto result = hn::IfThenElse(above(0x387FFFFFu), normal, denormal);
    result = hn::Min(result, hn::Set(wide, 0x7BFFu));
    result = hn::IfThenElse(above(0x7F7FFFFFu), hn::Set(wide, 0x7C00u), result);
    result = hn::IfThenElse(above(0x7F800000u), hn::Set(wide, 0x7E00u), result);
    result = hn::Or(result, hn::ShiftRight<16>(hn::Xor(bits, magnitude)));
    HWY_ALIGN std::uint16_t rounded[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(whole, result)), narrow, rounded);
    std::memcpy(out + i, rounded, n * sizeof(*out));
  });
}

void NearestFp16(const float* values, std::uint16_t* out, int width) {
  const D d;
  const Words wide;
  const Whole whole;
  const hn::Rebind<std::uint16_t, D> narrow;
  for_each_vector(width, [&](int i, int n) {
    const auto bits = hn::BitCast(wide, load(d, values + i, n));
    const auto magnitude = hn::And(bits, hn::Set(wide, 0x7FFFFFFFu));
    // Half of the last place less one, and one more if that is odd; the exponent's bias shrinks by 112.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(wide, 1u));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(wide, 0xC8000FFFu)), odd));
    // Below 2^-14 the adder rounds: 0.5's last place is 2^-24.
    const V shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
    const auto denormal = hn::Sub(hn::BitCast(wide, shifted), hn::Set(wide, 0x3F000000u));
    auto result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x387FFFFFu)), normal, denormal);
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x477FEFFFu)), hn::Set(wide, 0x7C00u),
                            result);
    result = hn::Or(result, hn::ShiftRight<16>(hn::Xor(bits, magnitude)));
    HWY_ALIGN std::uint16_t rounded[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(whole, result)), narrow, rounded);
    std::memcpy(out + i, rounded, n * sizeof(*out));
  });
}

void WidenFp16(const std::uint16_t* values, float* out, int width) {
  const D d;
  const Words wide;
  const hn::Rebind<std::uint16_t, D> narrow;
  for_each_vector(width, [&](int i, int n) {
    const auto bits = hn::PromoteTo(wide, load(narrow, values + i, n));
    const auto magnitude = hn::And(bits, hn::Set(wide, 0x7FFFu));
    // The exponent's bias grows by 127 - 15; the product is exact, also for denormals.
    const V value = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
    const auto infinite =
        hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(wide, 0x7BFFu)), hn::Set(wide, 0x7F800000u));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto joined = hn::Or(hn::Or(hn::BitCast(wide, value), infinite), sign);
    store(hn::BitCast(d, joined), d, out + i, n);
  });
}

// ---- 8 bits ------------------------------------------------------------------------------------------

float RoundInt8(const float* values, const std::uint32_t* words, std::int8_t* out, int width) {
  const D d;
  const Words wide;
  const Whole whole;
  const hn::Rebind<std::int8_t, D> narrow;
  V largest = hn::Zero(d);
  bool finite = true;
  const V limit = hn::Set(d, std::numeric_limits<float>::max());
  for_each_vector(width, [&](int i, int n) {
    const V magnitude = hn::Abs(load(d, values + i, n));
    finite = finite && hn::AllTrue(d, hn::Le(magnitude, limit));
    largest = hn::Max(largest, magnitude);
  });
  const float scale = hn::GetLane(hn::MaxOfLanes(d, largest)) / 127.0f;
  if (!finite || scale == 0) {
    std::memset(out, 0, width);
    return finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  for_each_vector(width, [&](int i, int n) {
    const V scaled = hn::Div(load(d, values + i, n), hn::Set(d, scale));
    const V floor = hn::Floor(scaled);
    const auto drawn = hn::ShiftRight<8>(load(wide, words + i, n));
    const V chance = hn::Mul(hn::ConvertTo(d, hn::BitCast(whole, drawn)), hn::Set(d, 0x1p-24f));
    const auto up = hn::Lt(chance, hn::Sub(scaled, floor));
    const V rounded = hn::Add(floor, hn::IfThenElseZero(up, hn::Set(d, 1.0f)));
    const V clamped = hn::Max(hn::Min(rounded, hn::Set(d, 127.0f)), hn::Set(d, -127.0f));
    HWY_ALIGN std::int8_t bytes[HWY_MAX_BYTES / sizeof(float)];
    hn::StoreU(hn::DemoteTo(narrow, hn::ConvertTo(whole, clamped)), narrow, bytes);
    std::memcpy(out + i, bytes, n);
  });
  return scale;
}

void WidenInt8(const std::int8_t* values, float scale, float* out, int width) {
  const D d;
  const Whole whole;
  const hn::Rebind<std::int8_t, D> narrow;
  for_each_vector(width, [&](int i, int n) {
    const V value = hn::ConvertTo(d, hn::PromoteTo(whole, load(narrow, values + i, n)));
    store(hn::Mul(value, hn::Set(d, scale)), d, out + i, n);
  });
}

// ---- Searches ----------------------------------------------------------------------------------------

// Which of the 16 bytes of the two words are `tag`, by bits. (The upper four bytes are a count.)
HWY_INLINE unsigned equal_tags(std::uint64_t low, std::uint64_t high, std::uint64_t tag) {
#if HWY_TARGET == HWY_SCALAR
  unsigned bits = 0;
  for (int k = 0; k < 16; ++k)
    bits |= static_cast<unsigned>(((k < 8 ? low : high) >> k % 8 * 8 & 0xFF) == tag) << k;
  return bits;
#else
  const hn::Full128<std::uint64_t> d;
  const hn::Full128<std::uint8_t> bytes;
  const auto both = hn::BitCast(bytes, hn::ConcatLowerLower(d, hn::Set(d, high), hn::Set(d, low)));
  std::uint8_t bits[8] = {};
  hn::StoreMaskBits(bytes, hn::Eq(both, hn::Set(bytes, static_cast<std::uint8_t>(tag))), bits);
  return bits[0] | bits[1] << 8;
#endif
}

HWY_INLINE std::uint32_t first_slot(RowIndex::Chunks chunks, std::uint32_t at, std::uint64_t tag) {
  for (std::uint32_t seen = 0; seen < chunks.count(); ++seen) {
    const RowIndex::Chunk& chunk = chunks.begin()[at];
    const std::uint64_t low = chunk.tags[0].load(std::memory_order_acquire);
    const std::uint64_t high = chunk.tags[1].load(std::memory_order_acquire);
    if (const unsigned equal = equal_tags(low, high, tag) & ((1u << RowIndex::kEntries) - 1))
      return chunk.slots[__builtin_ctz(equal)].load(std::memory_order_relaxed);
    if (high >> 32 == 0) return kNoSlot;
    at = at + 1 < chunks.count() ? at + 1 : 0;
  }
  return kNoSlot;
}

void Search(const SearchStart* starts, std::uint32_t* slots, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const RowIndex::Chunks chunks(starts[i].chunks);
    slots[i] = chunks.count() == 0 ? kNoSlot
                                   : first_slot(chunks, chunks.home(starts[i].hash),
                                                RowIndex::tag_of(starts[i].hash));
  }
}

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(UpdateRow);
HWY_EXPORT(DrawWords);
HWY_EXPORT(RoundFp16);
HWY_EXPORT(NearestFp16);
HWY_EXPORT(WidenFp16);
HWY_EXPORT(RoundInt8);
HWY_EXPORT(WidenInt8);
HWY_EXPORT(Search);

void update_row(const RowUpdate& update, const float* values, const float* gradient, float* states,
                float* out, int width) {
  HWY_DYNAMIC_DISPATCH(UpdateRow)(update, values, gradient, states, out, width);
}
void draw_words(std::uint64_t key, std::uint64_t id, std::uint32_t step, std::uint32_t* words,
                int count) {
  HWY_DYNAMIC_DISPATCH(DrawWords)(key, id, step, words, count);
}
void round_fp16(const float* values, const std::uint32_t* words, std::uint16_t* out, int width) {
  HWY_DYNAMIC_DISPATCH(RoundFp16)(values, words, out, width);
}
void nearest_fp16(const float* values, std::uint16_t* out, int width) {
  HWY_DYNAMIC_DISPATCH(NearestFp16)(values, out, width);
}
void widen_fp16(const std::uint16_t* values, float* out, int width) {
  HWY_DYNAMIC_DISPATCH(WidenFp16)(values, out, width);
}
float round_int8(const float* values, const std::uint32_t* words, std::int8_t* out, int width) {
  return HWY_DYNAMIC_DISPATCH(RoundInt8)(values, words, out, width);
}
void widen_int8(const std::int8_t* values, float scale, float* out, int width) {
  HWY_DYNAMIC_DISPATCH(WidenInt8)(values, scale, out, width);
}
void begin_search(const RowIndex& index, std::span<const std::uint64_t> ids, SearchStart* starts) {
  for (const std::uint64_t id : ids) {
    const std::uint64_t hash = row_hash(id);
    const RowIndex::Chunks chunks = index.chunks(hash);
    *starts++ = {chunks.packed, hash};
    if (chunks.count()) hwy::Prefetch(chunks.begin() + chunks.home(hash));
  }
}
void search(std::span<const SearchStart> starts, std::uint32_t* slots) {
  HWY_DYNAMIC_DISPATCH(Search)(starts.data(), slots, starts.size());
}
}  // namespace strata::kernels
#endif
