// The scale of fp16 is a power of two, so that scaling is exact and only the rounding to 11 bits is
// left; that of int8 has 8 significant bits, rounded up, so that no value passes 127.
#include "strata/embed/wire_values.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000;

// To nearest, ties to even.
std::uint16_t to_half(float value) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  bits &= 0x7fffffff;
  if (bits >= 0x477ff000) return sign | 0x7c00;  // beyond 65504 when rounded, or not finite
  if (bits < 0x38800000) {  // a subnormal half: the adder rounds, at 0.5's last place, 2^-24
    const float shifted = std::bit_cast<float>(bits) + 0.5f;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000);
  }
  bits += 0xc8000fff + ((bits >> 13) & 1);
  return sign | static_cast<std::uint16_t>(bits >> 13);
}

float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t rest = half & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | kInfinity | ((rest & 0x3ff) << 13));
  if (rest < 0x400) {
    const float value = static_cast<float>(rest) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000));
}

float largest(std::span<const float> row) {
  std::uint32_t most = 0;  // of magnitudes, whose bits order as they do; NaN is above infinity
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

// The largest magnitude is in [1, 2) times 2^exponent.
int exponent_of(float most) {
  if (most == 0) return 0;
  const int exponent = std::ilogb(most);
  return exponent < -126 ? -126 : exponent;
}

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23);
}

// A 127th of the largest magnitude, as the upper half of a float, rounded up.
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

void encode_row(WirePrecision precision, std::span<const float> row, std::byte* out) {
  switch (precision) {
    case WirePrecision::kFp32:
      std::memcpy(out, row.data(), row.size_bytes());
      return;
    case WirePrecision::kFp16:
      for (const float value : row) {
        const std::uint16_t half = to_half(value);
        if ((half & 0x7c00) == 0x7c00) refuse_value(precision, value);
        put_half(half, out), out += 2;
      }
      return;
    case WirePrecision::kScaledFp16: {
      const int exponent = exponent_of(largest(row));
      // In two steps: 2^-exponent of the largest floats is no normal number.
      const float half_scale = power_of_two(-(exponent / 2));
      const float other_scale = power_of_two(-(exponent - exponent / 2));
      *out++ = static_cast<std::byte>(exponent);
      for (const float value : row)
        put_half(to_half(value * half_scale * other_scale), out), out += 2;
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
      for (float& value : row) value = from_half(get_half(in)), in += 2;
      return;
    case WirePrecision::kScaledFp16: {
      const int exponent = static_cast<std::int8_t>(*in++);
      const float half_scale = power_of_two(exponent / 2);
      const float other_scale = power_of_two(exponent - exponent / 2);
      for (float& value : row) value = from_half(get_half(in)) * half_scale * other_scale, in += 2;
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
  switch (precision) {
    case WirePrecision::kFp32:
      return "fp32";
    case WirePrecision::kFp16:
      return "fp16";
    case WirePrecision::kScaledFp16:
      return "scaled_fp16";
    case WirePrecision::kScaledInt8:
      return "scaled_int8";
  }
  return "?";
}

std::size_t values_bytes(WirePrecision precision, std::size_t rows, int width) {
  return rows * row_bytes(precision, width);
}

void encode_values(WirePrecision precision, std::span<const float> values, int width,
                   std::vector<std::byte>& out) {
  require_finite(precision, values);
  const auto elements = static_cast<std::size_t>(width);
  const std::size_t rows = values.size() / elements, bytes = row_bytes(precision, width);
  std::size_t at = out.size();
  out.resize(at + rows * bytes);
  for (std::size_t row = 0; row < rows; ++row, at += bytes)
    encode_row(precision, values.subspan(row * elements, elements), out.data() + at);
}

void decode_values(WirePrecision precision, std::span<const std::byte> bytes, int width,
                   std::span<float> values) {
  const auto elements = static_cast<std::size_t>(width);
  const std::size_t rows = values.size() / elements, size = row_bytes(precision, width);
  if (bytes.size() != rows * size)
    throw SystemError({.operation = "embed.wire",
                       .what = "rows have another size than their number says",
                       .expected = std::to_string(rows * size) + " bytes",
                       .got = std::to_string(bytes.size())});
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
