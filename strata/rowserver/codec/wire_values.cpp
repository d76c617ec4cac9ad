// The scale of fp16 is a power of two: scaling is exact and only the rounding to 11 bits remains.
// The scale of int8 has 8 significant bits and is rounded up, so no value exceeds 127.
#include "strata/rowserver/codec/wire_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <string>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/rowserver/codec/row_rounding.h"

namespace strata {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;
// Elements that are checked and then copied at a time, so that the copy reads them from the
// first-level cache.
constexpr std::size_t kBlockElements = 2048;

// Floats at any byte address. A vector is constructed from them without being zeroed first.
class FloatsOfBytes {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = float;
  using difference_type = std::ptrdiff_t;
  using pointer = const float*;
  using reference = float;

  explicit FloatsOfBytes(const std::byte* at) : at_(at) {}
  float operator*() const {
    float value = 0;
    std::memcpy(&value, at_, sizeof(value));
    return value;
  }
  FloatsOfBytes& operator++() {
    at_ += sizeof(float);
    return *this;
  }
  FloatsOfBytes& operator--() {
    at_ -= sizeof(float);
    return *this;
  }
  FloatsOfBytes& operator+=(std::ptrdiff_t count) {
    at_ += count * static_cast<std::ptrdiff_t>(sizeof(float));
    return *this;
  }
  FloatsOfBytes operator+(std::ptrdiff_t count) const { return FloatsOfBytes(*this) += count; }
  std::ptrdiff_t operator-(FloatsOfBytes other) const {
    return (at_ - other.at_) / static_cast<std::ptrdiff_t>(sizeof(float));
  }
  bool operator==(const FloatsOfBytes&) const = default;

 private:
  const std::byte* at_;
};

float largest(std::span<const float> row) {
  // largest magnitude as bits, which order as the magnitudes do; NaN is above infinity
  std::uint32_t most = 0;
  for (const float value : row)
    most = std::max(most, std::bit_cast<std::uint32_t>(value) & 0x7fffffff);
  return std::bit_cast<float>(most);
}

[[noreturn]] void refuse_value(WirePrecision precision, float value) {
  const bool finite = std::isfinite(value);
  throw UserError({.operation = "embed.wire",
                   .what = finite ? "a value is too large for fp16" : "a value is not finite",
                   .expected = finite ? "magnitudes up to 65504" : "numbers",
                   .got = std::to_string(value) + " in " + name_of(precision),
                   .fix = finite ? "send rows and gradients as scaled_fp16 or fp32"
                                 : "the run diverges: lower the learning rate of the embeddings"});
}

void require_finite(WirePrecision precision, std::span<const float> values) {
  std::uint32_t unfit = 0;
  for (const float value : values)
    unfit |= (std::bit_cast<std::uint32_t>(value) & kInfinity) == kInfinity;
  if (unfit == 0) return;
  for (const float value : values)
    if (!std::isfinite(value)) refuse_value(precision, value);
}

// Returns e such that the largest magnitude is in [1, 2) times 2^e.
int exponent_of(float most) {
  if (most == 0) return 0;
  const int exponent = std::ilogb(most);
  return exponent < -126 ? -126 : exponent;
}

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// Returns the largest magnitude / 127 as the upper half of a float, rounded up.
std::uint16_t scale_of(float most) {
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(most / 127) + 0xffff) >> 16);
}

float scale_value(std::uint16_t scale) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(scale) << 16);
}

void put_half(std::uint16_t half, std::byte* out) { std::memcpy(out, &half, 2); }
std::uint16_t get_half(const std::byte* in) {
  std::uint16_t half = 0;
  std::memcpy(&half, in, 2);
  return half;
}

// Elements that are converted at a time between numbers and bytes at any address.
constexpr std::size_t kHalves = 256;

void put_halves(std::span<const float> values, float factor, float other_factor, std::byte* out) {
  float scaled[kHalves];
  std::uint16_t halves[kHalves];
  while (!values.empty()) {
    const std::size_t count = std::min(kHalves, values.size());
    for (std::size_t i = 0; i < count; ++i) scaled[i] = values[i] * factor * other_factor;
    kernels::nearest_fp16(scaled, halves, static_cast<int>(count));
    std::memcpy(out, halves, 2 * count);
    out += 2 * count;
    values = values.subspan(count);
  }
}

void get_halves(const std::byte* in, std::span<float> values) {
  std::uint16_t halves[kHalves];
  for (std::size_t at = 0; at < values.size(); at += kHalves) {
    const std::size_t count = std::min(kHalves, values.size() - at);
    std::memcpy(halves, in + 2 * at, 2 * count);
    kernels::widen_fp16(halves, values.data() + at, static_cast<int>(count));
  }
}

void encode_row(WirePrecision precision, std::span<const float> row, std::byte* out) {
  switch (precision) {
    case WirePrecision::kFp32:
      std::memcpy(out, row.data(), row.size_bytes());
      return;
    case WirePrecision::kFp16: {
      put_halves(row, 1, 1, out);
      bool fits = true;
      for (std::size_t i = 0; i < row.size(); ++i)
        fits &= (get_half(out + 2 * i) & 0x7c00) != 0x7c00;
      if (fits) return;
      for (std::size_t i = 0; i < row.size(); ++i)
        if ((get_half(out + 2 * i) & 0x7c00) == 0x7c00) refuse_value(precision, row[i]);
      return;
    }
    case WirePrecision::kScaledFp16: {
      const int exponent = exponent_of(largest(row));
      *out++ = static_cast<std::byte>(exponent);
      // In two steps, because 2^-exponent of the largest floats is not a normal number.
      put_halves(row, power_of_two(-(exponent / 2)), power_of_two(-(exponent - exponent / 2)), out);
      return;
    }
    case WirePrecision::kScaledInt8: {
      const std::uint16_t scale = scale_of(largest(row));
      put_half(scale, out), out += 2;
      const float unit = scale == 0 ? 1 : scale_value(scale);
      for (const float value : row)
        *out++ = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(value / unit)));
      return;
    }
  }
}

void decode_row(WirePrecision precision, const std::byte* in, std::span<float> row) {
  switch (precision) {
    case WirePrecision::kFp32:
      std::memcpy(row.data(), in, row.size_bytes());
      return;
    case WirePrecision::kFp16:
      return get_halves(in, row);
    case WirePrecision::kScaledFp16: {
      const int exponent = static_cast<std::int8_t>(*in++);
      const float half_scale = power_of_two(exponent / 2);
      const float other_scale = power_of_two(exponent - exponent / 2);
      get_halves(in, row);
      for (float& value : row) value = value * half_scale * other_scale;
      return;
    }
    case WirePrecision::kScaledInt8: {
      const float unit = scale_value(get_half(in));
      in += 2;
      for (float& value : row) value = static_cast<float>(static_cast<std::int8_t>(*in++)) * unit;
      return;
    }
  }
}

std::size_t row_bytes(WirePrecision precision, int width) {
  const auto elements = static_cast<std::size_t>(width);
  switch (precision) {
    case WirePrecision::kFp32:
      return 4 * elements;
    case WirePrecision::kFp16:
      return 2 * elements;
    case WirePrecision::kScaledFp16:
      return 2 * elements + 1;
    case WirePrecision::kScaledInt8:
      return elements + 2;
  }
  return 0;
}

}  // namespace

const char* name_of(WirePrecision precision) {
  using enum WirePrecision;
  static constexpr EnumNames<WirePrecision> kNames{
      {kFp32, "fp32"}, {kFp16, "fp16"}, {kScaledFp16, "scaled_fp16"}, {kScaledInt8, "scaled_int8"}};
  return kNames[precision];
}

std::size_t values_bytes(WirePrecision precision, std::size_t rows, int width) {
  return rows * row_bytes(precision, width);
}

void encode_values(WirePrecision precision, std::span<const float> values, int width,
                   std::vector<std::byte>& out) {
  const auto elements = static_cast<std::size_t>(width);
  const std::size_t size = row_bytes(precision, width);
  const std::size_t block = std::max<std::size_t>(1, kBlockElements / elements) * elements;
  std::vector<std::byte> scratch(precision == WirePrecision::kFp32 ? 0 : block / elements * size);
  for (std::size_t at = 0; at < values.size(); at += block) {
    const auto some = values.subspan(at, std::min(block, values.size() - at));
    require_finite(precision, some);
    std::span<const std::byte> bytes = std::as_bytes(some);
    if (precision != WirePrecision::kFp32) {
      std::byte* to = scratch.data();
      for (std::size_t row = 0; row < some.size(); row += elements, to += size)
        encode_row(precision, some.subspan(row, elements), to);
      bytes = {scratch.data(), to};
    }
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
}

std::vector<float> decoded_values(WirePrecision precision, std::span<const std::byte> bytes,
                                  int width) {
  const std::size_t rows = bytes.size() / row_bytes(precision, width);
  const std::size_t count = rows * static_cast<std::size_t>(width);
  std::vector<float> values;
  if (precision != WirePrecision::kFp32 || bytes.size() != count * sizeof(float)) {
    values.resize(count);
    decode_values(precision, bytes, width, values);
    return values;
  }
  values.reserve(count);
  for (std::size_t at = 0; at < count; at += kBlockElements) {
    const FloatsOfBytes from{bytes.data() + at * sizeof(float)};
    const std::size_t some = std::min(kBlockElements, count - at);
    values.insert(values.end(), from, from + static_cast<std::ptrdiff_t>(some));
    require_finite(precision, std::span(values).last(some));
  }
  return values;
}

void decode_values(WirePrecision precision, std::span<const std::byte> bytes, int width,
                   std::span<float> values) {
  const auto elements = static_cast<std::size_t>(width);
  const std::size_t rows = values.size() / elements, size = row_bytes(precision, width);
  if (bytes.size() != rows * size)
    throw SystemError({.operation = "embed.wire",
                       .what = "rows have another size than their number says",
                       .expected = std::to_string(rows * size) + " bytes",
                       .got = std::to_string(bytes.size()),
                       .fix = "start servers and trainers with the same program"});
  for (std::size_t row = 0; row < rows; ++row)
    decode_row(precision, bytes.data() + row * size, values.subspan(row * elements, elements));
  require_finite(precision, values);
}

void round_values(WirePrecision precision, std::span<float> values, int width) {
  require_finite(precision, values);
  if (precision == WirePrecision::kFp32) return;
  const auto elements = static_cast<std::size_t>(width);
  std::vector<std::byte> bytes(row_bytes(precision, width));
  for (std::size_t at = 0; at < values.size(); at += elements) {
    encode_row(precision, values.subspan(at, elements), bytes.data());
    decode_row(precision, bytes.data(), values.subspan(at, elements));
  }
}

}  // namespace strata
