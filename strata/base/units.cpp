#include "strata/base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

struct Suffix {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<Suffix, 10> kSuffixes = {{{"", 1},
                                               {"B", 1},
                                               {"KiB", std::int64_t{1} << 10},
                                               {"MiB", std::int64_t{1} << 20},
                                               {"GiB", std::int64_t{1} << 30},
                                               {"TiB", std::int64_t{1} << 40},
                                               {"KB", 1'000},
                                               {"MB", 1'000'000},
                                               {"GB", 1'000'000'000},
                                               {"TB", 1'000'000'000'000}}};
constexpr std::array<Suffix, 4> kIec = {{kSuffixes[2], kSuffixes[3], kSuffixes[4], kSuffixes[5]}};

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 512> buffer;  // the longest double in %f takes 310 characters
  std::snprintf(buffer.data(), buffer.size(), format, values...);
  return buffer.data();
}

UserError not_bytes(std::string_view text, const std::string& what) {
  return UserError({.operation = "base.parse_bytes",
                    .where = "",
                    .what = what,
                    .expected = "a number and B, KiB, MiB, GiB, TiB, KB, MB, GB or TB",
                    .got = quote(text),
                    .fix = "write it like 2GiB, 512MiB or 0"});
}

// Whole numbers stay integers: a double cannot hold every byte count.
bool scale(std::string_view number, std::int64_t unit, std::int64_t& bytes) {
  if (number.find('.') == std::string_view::npos) {
    const auto [end, error] = std::from_chars(number.begin(), number.end(), bytes);
    return error == std::errc() && end == number.end() &&
           !__builtin_mul_overflow(bytes, unit, &bytes);
  }
  double value = 0;
  const auto [end, error] =
      std::from_chars(number.begin(), number.end(), value, std::chars_format::fixed);
  value = std::round(value * static_cast<double>(unit));
  if (error != std::errc() || end != number.end() || value >= 0x1p63) return false;
  bytes = static_cast<std::int64_t>(value);
  return true;
}

// Prints three significant digits of a value in [1, 1000), never in the form 1e+03.
std::string three_digits(double value) { return print("%.3g", value); }

std::string two_parts(std::int64_t big, const char* big_unit, std::int64_t small,
                      const char* small_unit) {
  return print("%lld %s %02lld %s", static_cast<long long>(big), big_unit,
               static_cast<long long>(small), small_unit);
}

std::string format_long_seconds(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return two_parts(whole / 60, "min", whole % 60, "s");
  const std::int64_t minutes = (whole + 30) / 60;
  if (minutes < 24 * 60) return two_parts(minutes / 60, "h", minutes % 60, "min");
  const std::int64_t hours = (minutes + 30) / 60;
  return two_parts(hours / 24, "d", hours % 24, "h");
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  std::size_t digits = text.find_first_not_of("0123456789.");
  if (digits == std::string_view::npos) digits = text.size();
  if (digits == 0) throw not_bytes(text, "not a number of bytes");
  std::string_view name = text.substr(digits);
  if (name.starts_with(' ')) name.remove_prefix(1);
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.name != name) continue;
    Bytes bytes;
    if (scale(text.substr(0, digits), suffix.bytes, bytes.count)) return bytes;
    throw not_bytes(text, "malformed or too large a number of bytes");
  }
  throw not_bytes(text, "unknown unit " + quote(name));
}

std::string format_bytes(std::int64_t bytes) {
  const double size = std::fabs(static_cast<double>(bytes));
  if (size < 1024) return std::to_string(bytes) + " B";
  for (const Suffix& suffix : kIec) {
    const double value = static_cast<double>(bytes) / static_cast<double>(suffix.bytes);
    // 1023.996 would be printed as 1024.00, so it uses the next unit.
    if (std::fabs(value) < 1023.995 || suffix.name == kIec.back().name) {
      return print("%.2f ", value) + std::string(suffix.name);
    }
  }
  return {};
}

std::string format_bytes_exactly(std::int64_t bytes) {
  if (bytes == 0) return "0";
  for (auto suffix = kIec.rbegin(); suffix != kIec.rend(); ++suffix) {
    if (bytes % suffix->bytes == 0) {
      return std::to_string(bytes / suffix->bytes) + std::string(suffix->name);
    }
  }
  return std::to_string(bytes) + "B";
}

std::string format_seconds(double seconds) {
  if (seconds < 0) return "-" + format_seconds(-seconds);
  if (seconds < 1e-12) return "0 s";  // the rounding error of a difference
  if (!std::isfinite(seconds) || seconds > 1e15) return print("%g s", seconds);
  if (seconds >= 59.95) return format_long_seconds(seconds);
  if (seconds >= 0.9995) return three_digits(seconds) + " s";
  if (seconds >= 0.9995e-3) return three_digits(seconds * 1e3) + " ms";
  if (seconds >= 0.9995e-6) return three_digits(seconds * 1e6) + " us";
  return three_digits(seconds * 1e9) + " ns";
}

std::string format_count(double count) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  while (std::fabs(count) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    count /= 1000;
    ++prefix;
  }
  return three_digits(count) + std::string(kPrefixes[prefix]);
}

std::string format_double(double value, int decimals) { return print("%.*f", decimals, value); }

std::string format_double_exactly(double value) {
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string format_hex(double value) { return print("%a", value); }

}  // namespace strata
