#include "strata/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace strata {
namespace {

[[noreturn]] void refuse_operands(const std::string& operation, const JinjaValue& a,
                                  const JinjaValue& b) {
  throw JinjaProblem{"'" + operation + "' does not apply to these values", "",
                     a.type() + " and " + b.type()};
}

// `value` is a reference: compilers may evaluate it before the call that computes it.
std::int64_t checked(bool overflows, const std::int64_t& value) {
  if (overflows) throw JinjaProblem{"an int is too large", "at most 64 bits"};
  return value;
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) throw JinjaProblem{"a division by zero"};
  if (b == -1) return checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a);
  const std::int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

JinjaValue power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw JinjaProblem{"a division by zero"};
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? std::int64_t{1} : base;
  if (base == -1) return std::int64_t{exponent % 2 == 0 ? 1 : -1};
  std::int64_t value = 1;
  for (std::int64_t i = 0; i < exponent; ++i) {
    std::int64_t next = 0;
    value = checked(__builtin_mul_overflow(value, base, &next), next);
  }
  return value;
}

JinjaValue on_wholes(const std::string& operation, std::int64_t a, std::int64_t b) {
  std::int64_t made = 0;
  if (operation == "+") return checked(__builtin_add_overflow(a, b, &made), made);
  if (operation == "-") return checked(__builtin_sub_overflow(a, b, &made), made);
  if (operation == "*") return checked(__builtin_mul_overflow(a, b, &made), made);
  if (operation == "//") return floor_quotient(a, b);
  if (operation == "%") return b == -1 ? std::int64_t{0} : a - floor_quotient(a, b) * b;
  if (operation == "**") return power(a, b);
  if (b == 0) throw JinjaProblem{"a division by zero"};
  return static_cast<double>(a) / static_cast<double>(b);
}

double floor_remainder(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

JinjaValue on_numbers(const std::string& operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "**") {
    if (a < 0 && b != std::floor(b)) throw JinjaProblem{"a power is no real number"};
    if (a == 0 && b < 0) throw JinjaProblem{"a division by zero"};
    const double made = std::pow(a, b);
    if (std::isinf(made) && !std::isinf(a) && !std::isinf(b))
      throw JinjaProblem{"a power is too large"};
    return made;
  }
  if (b == 0) throw JinjaProblem{"a division by zero"};
  if (operation == "/") return a / b;
  const double remainder = floor_remainder(a, b);
  if (operation == "%") return remainder;
  const double quotient = std::round((a - remainder) / b);
  return quotient;
}

JinjaValue repeated(const JinjaValue& value, std::int64_t times, JinjaMeter& meter) {
  times = std::max<std::int64_t>(times, 0);
  if (const std::string* text = value.string()) {
    const auto bytes = static_cast<std::int64_t>(text->size());
    meter.text(bytes == 0 || times <= JinjaMeter::kMaxTextBytes ? bytes * times
                                                                : JinjaMeter::kMaxTextBytes + 1);
    std::string made;
    for (std::int64_t i = 0; bytes > 0 && i < times; ++i) made += *text;
    return made;
  }
  const JinjaSequence& list = *value.sequence();
  const auto count = static_cast<std::int64_t>(list.items.size());
  if (count > 0)
    meter.items(times <= JinjaMeter::kMaxItems ? count * times : JinjaMeter::kMaxItems + 1);
  JinjaSequence made{{}, list.kind};
  for (std::int64_t i = 0; count > 0 && i < times; ++i)
    made.items.insert(made.items.end(), list.items.begin(), list.items.end());
  return made;
}

bool repeats(const JinjaValue& value) {
  return value.string() || (value.sequence() && value.sequence()->kind != JinjaSequenceKind::kView);
}

JinjaValue joined(const std::string& a, const std::string& b, JinjaMeter& meter) {
  meter.text(static_cast<std::int64_t>(a.size() + b.size()));
  return a + b;
}

std::optional<JinjaValue> on_sequences(const std::string& operation, const JinjaValue& a,
                                       const JinjaValue& b, JinjaMeter& meter) {
  if (operation == "+") {
    if (a.string() && b.string()) return joined(*a.string(), *b.string(), meter);
    if (repeats(a) && repeats(b) && a.sequence() && b.sequence() &&
        a.sequence()->kind == b.sequence()->kind) {
      JinjaSequence made = *a.sequence();
      meter.items(a.length() + b.length());
      made.items.insert(made.items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
      return JinjaValue(std::move(made));
    }
  }
  if (operation == "*" && repeats(a) && b.whole()) return repeated(a, *b.whole(), meter);
  if (operation == "*" && repeats(b) && a.whole()) return repeated(b, *a.whole(), meter);
  return std::nullopt;
}

bool contains(const JinjaValue& all, const JinjaValue& item) {
  if (const std::string* text = all.string()) {
    if (!item.string()) refuse_operands("in", item, all);
    return text->find(*item.string()) != std::string::npos;
  }
  if (const JinjaDict* dict = all.dict()) {
    require_key(item);
    return dict->find(item) != nullptr;
  }
  const std::vector<JinjaValue> items = all.items();
  return std::ranges::find(items, item) != items.end();
}

}  // namespace

JinjaValue operate(const std::string& operation, const JinjaValue& a, const JinjaValue& b,
                   JinjaMeter& meter) {
  if (operation == "~") return joined(a.text(), b.text(), meter);
  if (operation == "%" && a.string())
    throw JinjaProblem{"a text is formatted with '%', which Strata does not support",
                       "'~' joins texts"};
  for (const JinjaValue* each : {&a, &b})
    if (const JinjaUndefined* undefined = each->undefined()) throw JinjaProblem{undefined->what};
  if (a.whole() && b.whole()) return on_wholes(operation, *a.whole(), *b.whole());
  if (a.number() && b.number()) return on_numbers(operation, *a.number(), *b.number());
  if (auto made = on_sequences(operation, a, b, meter)) return *std::move(made);
  refuse_operands(operation, a, b);
}

bool compares(const std::string& operation, const JinjaValue& a, const JinjaValue& b) {
  if (operation == "==") return a == b;
  if (operation == "!=") return !(a == b);
  if (operation == "in") return contains(b, a);
  if (operation == "not in") return !contains(b, a);
  for (const JinjaValue* each : {&a, &b})
    if (const JinjaUndefined* undefined = each->undefined()) throw JinjaProblem{undefined->what};
  if (a.number() && b.number() && (std::isnan(*a.number()) || std::isnan(*b.number())))
    return false;
  const int order = compare(a, b);
  if (operation == "<") return order < 0;
  if (operation == "<=") return order <= 0;
  if (operation == ">") return order > 0;
  return order >= 0;
}

JinjaValue negative_of(const JinjaValue& value) {
  if (const auto whole = value.whole()) return checked(*whole == INT64_MIN, -*whole);
  if (const auto number = value.number()) return -*number;
  if (const JinjaUndefined* undefined = value.undefined()) throw JinjaProblem{undefined->what};
  throw JinjaProblem{"'-' does not apply to this value", "a number", value.type()};
}

}  // namespace strata
