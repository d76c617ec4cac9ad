// fp16 is rounded with integer operations, because Highway's emulation on processors without fp16
// instructions neither rounds correctly nor keeps infinities. The compiler fuses no operations
// (cmake/toolchain.cmake).
#include "strata/rowserver/codec/row_rounding.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "strata/rowserver/codec/row_rounding.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "strata/rowserver/codec/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::HWY_NAMESPACE {

using Words = hn::RebindToUnsigned<D>;
using Whole = hn::RebindToSigned<D>;

// ---- Random words -------------------------------------------------------------------------------

// Processes several Philox blocks in parallel. A word of each is in the lower half of a 64-bit
// lane, where MulEven reads it.
void DrawWords(std::uint64_t key, std::uint64_t id, std::uint32_t step, std::uint32_t* words,
               int count) {
  const hn::CappedTag<std::uint64_t, 8> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto lower = hn::Set(d, 0xFFFFFFFFull);
  const auto product = [&](auto x, std::uint32_t factor) {
#if HWY_TARGET == HWY_SCALAR  // which has a single lane for both widths; g++ compiles it
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

// ---- 16 bits ------------------------------------------------------------------------------------

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
    // From 2^-14 on: adding the random bits to the discarded bits carries into the kept bits with
    // the right probability.
    const auto carried = hn::Add(magnitude, hn::And(drawn, hn::Set(wide, 0x1FFFu)));
    const auto normal = hn::Sub(hn::ShiftRight<13>(carried), hn::Set(wide, 112u << 10));
    // Below 2^-14 the result is a multiple of 2^-24. The product and the fraction are exact.
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
    // Adds half of the last place minus one, plus one if that place is odd. The exponent's bias
    // shrinks by 112.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(wide, 1u));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, hn::Set(wide, 0xC8000FFFu)), odd));
    // Below 2^-14 the addition rounds: the last place of 0.5 is 2^-24.
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
    // The exponent's bias grows by 127 - 15. The product is exact, also for denormals.
    const V value = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
    const auto infinite =
        hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(wide, 0x7BFFu)), hn::Set(wide, 0x7F800000u));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto joined = hn::Or(hn::Or(hn::BitCast(wide, value), infinite), sign);
    store(hn::BitCast(d, joined), d, out + i, n);
  });
}

// ---- 8 bits -------------------------------------------------------------------------------------

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

}  // namespace strata::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels {
HWY_EXPORT(DrawWords);
HWY_EXPORT(RoundFp16);
HWY_EXPORT(NearestFp16);
HWY_EXPORT(WidenFp16);
HWY_EXPORT(RoundInt8);
HWY_EXPORT(WidenInt8);

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
}  // namespace strata::kernels
#endif
