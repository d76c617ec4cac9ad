// The filters of Jinja that make numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "strata/jinja/filter_arguments.h"
#include "strata/jinja/operators.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

JinjaValue absolute(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("abs", call);
  if (value.whole() && *value.whole() >= 0) return *value.whole();
  if (const double* real = value.real()) return std::fabs(*real);
  return negative_of(value);
}

std::optional<double> parsed_real(const std::string& text) {
  const std::string_view trimmed = strip(text, nullptr, true, true);
  double number = 0;
  const char* begin = trimmed.data() + (trimmed.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, trimmed.data() + trimmed.size(), number);
  if (error != std::errc() || end != trimmed.data() + trimmed.size()) return std::nullopt;
  return number;
}

std::optional<std::int64_t> parsed_whole(const std::string& text) {
  const std::string_view trimmed = strip(text, nullptr, true, true);
  std::int64_t number = 0;
  const char* begin = trimmed.data() + (trimmed.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, trimmed.data() + trimmed.size(), number);
  if (error != std::errc() || end != trimmed.data() + trimmed.size()) return std::nullopt;
  return number;
}

JinjaValue to_int(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("int", {"default", "base"});
  if (bound[1] && whole_argument(bound[1], 10) != 10)
    throw JinjaProblem{"the filter 'int' supports no other base", "10", bound[1]->text()};
  if (const JinjaUndefined* undefined = value.undefined()) throw JinjaProblem{undefined->what};
  const JinjaValue otherwise = bound[0].value_or(JinjaValue(std::int64_t{0}));
  if (const auto number = value.whole()) return *number;
  std::optional<double> real = value.number();
  if (const std::string* text = value.string()) {
    if (const auto number = parsed_whole(*text)) return *number;
    real = parsed_real(*text);
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  if (std::fabs(*real) >= 9.2e18) throw JinjaProblem{"an int is too large", "at most 64 bits"};
  return static_cast<std::int64_t>(*real);
}

JinjaValue to_float(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("float", {"default"});
  if (const JinjaUndefined* undefined = value.undefined()) throw JinjaProblem{undefined->what};
  std::optional<double> number = value.number();
  if (value.string()) number = parsed_real(*value.string());
  return number ? JinjaValue(*number) : bound[0].value_or(JinjaValue(0.0));
}

JinjaValue rounded(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("round", {"precision", "method"});
  const std::string method = text_argument(bound[1], "common");
  if (!value.number()) throw JinjaProblem{"the filter 'round' needs a number", "", value.type()};
  const std::int64_t digits = std::clamp<std::int64_t>(whole_argument(bound[0], 0), -15, 15);
  const double scale = std::pow(10.0, static_cast<double>(digits));
  if (method == "ceil") return std::ceil(*value.number() * scale) / scale;
  if (method == "floor") return std::floor(*value.number() * scale) / scale;
  if (method != "common")
    throw JinjaProblem{"the filter 'round' has no such method", "common, ceil or floor", method};
  if (value.whole() && digits >= 0) return *value.whole();
  if (digits < 0) return std::nearbyint(*value.number() * scale) / scale;
  // The decimal digits of the exact value, as Python rounds.
  char buffer[400];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, *value.number(),
                                 std::chars_format::fixed, static_cast<int>(digits))
                       .ptr;
  double number = 0;
  std::from_chars(buffer, end, number);
  return number;
}

}  // namespace

const JinjaFilters& number_filters() {
  static const JinjaFilters all = {
      {"abs", absolute},
      {"float", to_float},
      {"int", to_int},
      {"round", rounded},
  };
  return all;
}

}  // namespace strata
