// A value is stored only if type, choices and range allow it: a refusal leaves the field unchanged.
// (options_yaml.cpp reads lists and sections.) The types are those of OptionSet::Target; a new type
// needs only an overload each of write, type_name, parse and magnitude.
#include "strata/base/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

std::string write(bool value) { return value ? "true" : "false"; }
std::string write(int value) { return std::to_string(value); }
std::string write(std::int64_t value) { return std::to_string(value); }
std::string write(double value) { return format_double_exactly(value); }
std::string write(const std::string& value) { return value; }
std::string write(Bytes value) { return format_bytes_exactly(value.count); }

// A default without a name is refused like any other value.
std::string write(const NamedValues& values) {
  const std::size_t chosen = values.chosen();
  return chosen < values.names.size() ? values.names[chosen] : "";
}

const char* type_name(bool) { return "true or false"; }
const char* type_name(int) { return "a whole number"; }
const char* type_name(std::int64_t) { return "a whole number"; }
const char* type_name(double) { return "a number"; }
const char* type_name(const std::string&) { return "a text"; }
const char* type_name(Bytes) { return "a number of bytes such as 2GiB, 512MiB or 0"; }

template <typename Number>
bool parse_number(const std::string& text, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

bool parse(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
bool parse(const std::string& text, std::int64_t& value) { return parse_number(text, value); }
// A number beyond int is as far out of range as the largest int.
bool parse(const std::string& text, int& value) {
  std::int64_t wide = 0;
  if (!parse_number(text, wide)) return false;
  using Limits = std::numeric_limits<int>;
  value = static_cast<int>(std::clamp<std::int64_t>(wide, Limits::min(), Limits::max()));
  return true;
}
bool parse(const std::string& text, double& value) {
  return parse_number(text, value) && std::isfinite(value);
}
bool parse(const std::string& text, std::string& value) {
  value = text;
  return true;
}
bool parse(const std::string& text, Bytes& value) {
  try {
    value = parse_bytes(text);
    return true;
  } catch (const UserError&) {  // the caller's error names the field and the place
    return false;
  }
}

template <typename Value>
std::string fix_of(const std::string&, const Value& default_value) {
  return "write a value like its default, " + write(default_value);
}

// "8G" lacks only "iB". Defaults show no suffix, because most of them are 0.
std::string fix_of(const std::string& text, Bytes) {
  Bytes meant;
  if (parse(text + "iB", meant)) return "did you mean '" + text + "iB'?";
  return "write it like 2GiB, 512MiB or 0";
}

double magnitude(int value) { return value; }
double magnitude(std::int64_t value) { return static_cast<double>(value); }
double magnitude(double value) { return value; }
double magnitude(Bytes value) { return static_cast<double>(value.count); }

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : separator) + part;
  return joined;
}

std::string write_limit(const OptionSet::Target& target, double limit) {
  if (std::holds_alternative<Bytes*>(target)) {
    return format_bytes_exactly(static_cast<std::int64_t>(limit));
  }
  const bool whole =
      std::holds_alternative<int*>(target) || std::holds_alternative<std::int64_t*>(target);
  if (whole && std::fabs(limit) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(limit));
  }
  return format_double_exactly(limit);
}

std::string write_range(const OptionSet::Target& target, const FieldInfo& info) {
  const bool below = std::isfinite(info.minimum);
  const bool above = std::isfinite(info.maximum);
  const std::string minimum = below ? write_limit(target, info.minimum) : "";
  const std::string maximum = above ? write_limit(target, info.maximum) : "";
  if (below && above) return minimum + " to " + maximum;
  if (below) return "at least " + minimum;
  if (above) return "at most " + maximum;
  return "";
}

std::string unit_suffix(const FieldInfo& info) {
  return info.unit.empty() ? "" : " (" + info.unit + ")";
}

void check_range(const OptionSet::Target& target, const FieldInfo& info, double value,
                 const std::string& path, const std::string& text, const std::string& where) {
  if (value >= info.minimum && value <= info.maximum) return;
  const double nearest = value < info.minimum ? info.minimum : info.maximum;
  throw UserError({.operation = "base.options",
                   .where = where,
                   .what = "'" + path + "' is out of range",
                   .expected = write_range(target, info) + unit_suffix(info),
                   .got = text.size() < kLongestQuotation / 2 ? text : quote(text),
                   .fix = "the nearest legal value is " + write_limit(target, nearest)});
}

}  // namespace

std::string OptionSet::write_value(const Target& target) {
  if (std::holds_alternative<OptionList>(target) || std::holds_alternative<YamlSection*>(target))
    return write_yaml(target);
  return std::visit(
      [](const auto& value) {
        using Kind = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<Kind, OptionList> || std::is_same_v<Kind, YamlSection*>) {
          return std::string();
        } else if constexpr (std::is_pointer_v<Kind>) {
          return write(*value);
        } else {
          return write(value);
        }
      },
      target);
}

void OptionSet::read_value(const Target& target, const FieldInfo& info, const std::string& path,
                           const std::string& text, const std::string& where) {
  if (const auto* named = std::get_if<NamedValues>(&target)) {
    if (!info.choices.empty()) check_choice(path, text, info.choices, where);
    const auto found = std::ranges::find(named->names, text);
    return named->choose(static_cast<std::size_t>(found - named->names.begin()));
  }
  const auto read_plain = [&](auto* field) {
    std::remove_reference_t<decltype(*field)> value{};
    if (!parse(text, value)) {
      throw UserError({.operation = "base.options",
                       .where = where,
                       .what = "wrong type of value for '" + path + "'",
                       .expected = type_name(value) + unit_suffix(info),
                       .got = quote(text),
                       .fix = fix_of(text, *field)});
    }
    if constexpr (std::is_same_v<decltype(value), std::string>) {
      if (!info.choices.empty()) check_choice(path, text, info.choices, where);
    } else if constexpr (!std::is_same_v<decltype(value), bool>) {
      check_range(target, info, magnitude(value), path, text, where);
    }
    *field = value;
  };
  std::visit(
      [&](const auto& field) {
        using Kind = std::remove_cvref_t<decltype(field)>;
        if constexpr (std::is_pointer_v<Kind> && !std::is_same_v<Kind, YamlSection*>)
          read_plain(field);
      },
      target);
}

std::string OptionSet::write_limits(const Target& target, const FieldInfo& info) {
  return info.choices.empty() ? write_range(target, info) : join(info.choices, " | ");
}

}  // namespace strata
