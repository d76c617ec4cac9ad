// Each function computes in fp32 in the order of ggml, so that its bits equal those of other
// programs: scales are multiplied first, then the integer, and the minimum is subtracted last.
#include "strata/pretrained/gguf_blocks.h"

#include <array>
#include <bit>
#include <cstring>

namespace strata {
namespace {

constexpr int kSmall = 32;         // elements of a block of Q4_0, ..., Q8_0
constexpr int kHalf = kSmall / 2;  // its low nibbles come first
constexpr int kLarge = kMaxBlockElements;

int byte_at(const std::byte* bytes, int i) { return std::to_integer<int>(bytes[i]); }
int signed_at(const std::byte* bytes, int i) { return static_cast<std::int8_t>(bytes[i]); }

template <typename T>
T load_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

float half_at(const std::byte* bytes) {
  const std::uint32_t bits = load_as<std::uint16_t>(bytes);
  const std::uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1F;
  const std::uint32_t fraction = bits & 0x3FF;
  if (exponent == 0) {  // zero and subnormal numbers: multiples of 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void widen_f32(const std::byte* block, float* values) { *values = load_as<float>(block); }
void widen_f16(const std::byte* block, float* values) { *values = half_at(block); }
void widen_bf16(const std::byte* block, float* values) {
  *values = std::bit_cast<float>(std::uint32_t{load_as<std::uint16_t>(block)} << 16);
}

void widen_q8_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < kSmall; ++i) values[i] = scale * static_cast<float>(signed_at(block, 2 + i));
}

int nibble(const std::byte* quants, int i) {
  return i < kHalf ? byte_at(quants, i) & 0xF : byte_at(quants, i - kHalf) >> 4;
}

void widen_q4_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < kSmall; ++i) values[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
}

void widen_q4_1(const std::byte* block, float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int i = 0; i < kSmall; ++i)
    values[i] = scale * static_cast<float>(nibble(block + 4, i)) + minimum;
}

// The fifth bits of all elements stand before the nibbles.
int five_bits(const std::byte* quants, int i) {
  const auto high = load_as<std::uint32_t>(quants);
  return nibble(quants + 4, i) | static_cast<int>(high >> i & 1) << 4;
}

void widen_q5_0(const std::byte* block, float* values) {
  const float scale = half_at(block);
  for (int i = 0; i < kSmall; ++i)
    values[i] = scale * static_cast<float>(five_bits(block + 2, i) - 16);
}

void widen_q5_1(const std::byte* block, float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int i = 0; i < kSmall; ++i)
    values[i] = scale * static_cast<float>(five_bits(block + 4, i)) + minimum;
}

// The six-bit scale and minimum of eight groups of 32 elements, in 12 bytes.
struct GroupScale {
  int scale, minimum;
};
GroupScale group_scale(const std::byte* packed, int group) {
  if (group < 4) return {byte_at(packed, group) & 63, byte_at(packed, group + 4) & 63};
  const int low = byte_at(packed, group + 4);
  return {(low & 0xF) | byte_at(packed, group - 4) >> 6 << 4,
          low >> 4 | byte_at(packed, group) >> 6 << 4};
}

// Two groups share 32 bytes of nibbles. The fifth bits of Q5_K are bit `group` of `high`.
void widen_groups(const std::byte* block, const std::byte* quants, const std::byte* high,
                  float* values) {
  const float scale = half_at(block), minimum = half_at(block + 2);
  for (int group = 0; group < kLarge / kSmall; ++group) {
    const GroupScale g = group_scale(block + 4, group);
    const float group_factor = scale * static_cast<float>(g.scale);
    const float group_minimum = minimum * static_cast<float>(g.minimum);
    for (int i = 0; i < kSmall; ++i) {
      const int both = byte_at(quants, group / 2 * kSmall + i);
      int quant = group % 2 == 0 ? both & 0xF : both >> 4;
      if (high != nullptr) quant |= (byte_at(high, i) >> group & 1) << 4;
      values[group * kSmall + i] = group_factor * static_cast<float>(quant) - group_minimum;
    }
  }
}

void widen_q4_k(const std::byte* block, float* values) {
  widen_groups(block, block + 16, nullptr, values);
}

void widen_q5_k(const std::byte* block, float* values) {
  widen_groups(block, block + 48, block + 16, values);
}

// Halves of 128 elements; in each, the four quarters share 64 bytes of nibbles and 32 bytes of high
// bits. Scales are per 16 elements.
void widen_q6_k(const std::byte* block, float* values) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float scale = half_at(block + 208);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
    const int both = byte_at(low, half * 64 + quarter % 2 * 32 + at);
    const int top = byte_at(high, half * 32 + at) >> (2 * quarter) & 3;
    const int quant = ((quarter < 2 ? both & 0xF : both >> 4) | top << 4) - 32;
    values[i] = scale * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>(quant);
  }
}

constexpr BlockType kBlockTypes[] = {
    {0, "F32", 1, 4, widen_f32},           {1, "F16", 1, 2, widen_f16},
    {30, "BF16", 1, 2, widen_bf16},        {8, "Q8_0", kSmall, 34, widen_q8_0},
    {2, "Q4_0", kSmall, 18, widen_q4_0},   {3, "Q4_1", kSmall, 20, widen_q4_1},
    {6, "Q5_0", kSmall, 22, widen_q5_0},   {7, "Q5_1", kSmall, 24, widen_q5_1},
    {12, "Q4_K", kLarge, 144, widen_q4_k}, {13, "Q5_K", kLarge, 176, widen_q5_k},
    {14, "Q6_K", kLarge, 210, widen_q6_k}};

// Names of other types, by number, for errors.
constexpr std::array kTypeNames = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "Q4_2",   "Q4_3",  "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};

}  // namespace

const BlockType* find_block_type(std::uint32_t id) {
  for (const BlockType& type : kBlockTypes)
    if (type.id == id) return &type;
  return nullptr;
}

std::string tensor_type_name(std::uint32_t id) {
  return id < kTypeNames.size() ? kTypeNames[id] : "type " + std::to_string(id);
}

std::string supported_tensor_types() {
  std::string list;
  for (const BlockType& type : kBlockTypes)
    list += (list.empty() ? "" : ", ") + std::string(type.name);
  return list;
}

}  // namespace strata
