// The tests of Jinja: `value is name`.
#include <algorithm>
#include <map>

#include "strata/base/user_text.h"
#include "strata/jinja/filters.h"
#include "strata/jinja/operators.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

using Test = bool (*)(const JinjaValue&, const JinjaCall&);

const JinjaValue& only_argument(const JinjaCall& call) {
  if (call.arguments.size() != 1 || !call.named.empty())
    throw JinjaProblem{"this test compares with one value", "one argument",
                       std::to_string(call.arguments.size())};
  return call.arguments.front();
}

template <char... Operation>
bool compared(const JinjaValue& value, const JinjaCall& call) {
  return compares(std::string{Operation...}, value, only_argument(call));
}

bool is_in(const JinjaValue& value, const JinjaCall& call) {
  return compares("in", value, only_argument(call));
}

std::int64_t remainder(const JinjaValue& value, const JinjaValue& divisor, JinjaMeter& meter) {
  const JinjaValue rest = operate("%", value, divisor, meter);
  if (!rest.number()) throw JinjaProblem{"this test needs a number", "", value.type()};
  return *rest.number() == 0 ? 0 : *rest.number() == 1 ? 1 : 2;
}

bool is_divisible(const JinjaValue& value, const JinjaCall& call) {
  return remainder(value, only_argument(call), call.meter) == 0;
}
template <int Rest>
bool has_parity(const JinjaValue& value, const JinjaCall& call) {
  return remainder(value, std::int64_t{2}, call.meter) == Rest;
}

bool is_number(const JinjaValue& value, const JinjaCall&) { return value.number().has_value(); }
bool is_iterable(const JinjaValue& value, const JinjaCall&) {
  return value.undefined() || value.string() || value.sequence() || value.dict() ||
         (value.object() && value.object()->is_iterable());
}
// What has a length and items by number.
bool is_sequence(const JinjaValue& value, const JinjaCall&) {
  return value.undefined() || value.string() || value.dict() || value.sequence();
}

// str.islower(): a cased character, and none of the other case.
template <std::string (*Change)(std::string_view), std::string (*Other)(std::string_view)>
bool has_case(const JinjaValue& value, const JinjaCall&) {
  const std::string text = value.text();
  return Change(text) == text && Other(text) != text;
}

bool is_same(const JinjaValue& value, const JinjaCall& call) {
  const JinjaValue& other = only_argument(call);
  const bool scalar = value.is_none() || value.boolean();
  if (!scalar)
    throw JinjaProblem{"the test 'sameas' is supported for None and bool", "", value.type()};
  return value.type() == other.type() && value == other;
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> all = {
      {"==", compared<'=', '='>},
      {"!=", compared<'!', '='>},
      {"<", compared<'<'>},
      {"<=", compared<'<', '='>},
      {">", compared<'>'>},
      {">=", compared<'>', '='>},
      {"eq", compared<'=', '='>},
      {"equalto", compared<'=', '='>},
      {"ne", compared<'!', '='>},
      {"lt", compared<'<'>},
      {"lessthan", compared<'<'>},
      {"le", compared<'<', '='>},
      {"gt", compared<'>'>},
      {"greaterthan", compared<'>'>},
      {"ge", compared<'>', '='>},
      {"in", is_in},
      {"boolean",
       [](const JinjaValue& value, const JinjaCall&) { return value.boolean() != nullptr; }},
      {"callable",
       [](const JinjaValue& value, const JinjaCall&) {
         return value.undefined() || (value.object() && value.object()->is_callable());
       }},
      {"defined", [](const JinjaValue& value, const JinjaCall&) { return !value.undefined(); }},
      {"undefined",
       [](const JinjaValue& value, const JinjaCall&) { return value.undefined() != nullptr; }},
      {"divisibleby", is_divisible},
      {"even", has_parity<0>},
      {"odd", has_parity<1>},
      {"false", [](const JinjaValue& value,
                   const JinjaCall&) { return value.boolean() && !*value.boolean(); }},
      {"true", [](const JinjaValue& value,
                  const JinjaCall&) { return value.boolean() && *value.boolean(); }},
      {"float", [](const JinjaValue& value, const JinjaCall&) { return value.real() != nullptr; }},
      {"integer",
       [](const JinjaValue& value, const JinjaCall&) { return value.integer() != nullptr; }},
      {"iterable", is_iterable},
      {"lower", has_case<to_lower, to_upper>},
      {"upper", has_case<to_upper, to_lower>},
      {"mapping",
       [](const JinjaValue& value, const JinjaCall&) { return value.dict() != nullptr; }},
      {"none", [](const JinjaValue& value, const JinjaCall&) { return value.is_none(); }},
      {"number", is_number},
      {"sameas", is_same},
      {"sequence", is_sequence},
      {"string",
       [](const JinjaValue& value, const JinjaCall&) { return value.string() != nullptr; }},
  };
  return all;
}

}  // namespace

bool apply_test(const std::string& name, const JinjaValue& value, const JinjaCall& call) {
  const auto found = tests().find(name);
  if (found == tests().end())
    throw JinjaProblem{"Strata does not support this test", "", quote(name)};
  call.meter.step();
  return found->second(value, call);
}

void check_test(const std::string& name, JinjaPlace, const JinjaTokenReader& reader) {
  if (tests().contains(name)) return;
  std::vector<std::string> known;
  for (const auto& [each, test] : tests()) known.push_back(each);
  const std::string nearest = nearest_name(name, known);
  reader.refuse("Strata does not support the test " + quote(name),
                nearest.empty() ? "" : "perhaps '" + nearest + "'");
}

}  // namespace strata
