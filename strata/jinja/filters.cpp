#include "strata/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "strata/base/user_text.h"
#include "strata/jinja/json.h"
#include "strata/jinja/operators.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

using Values = std::vector<JinjaValue>;
using Filter = JinjaValue (*)(const JinjaValue&, const JinjaCall&);

// --- arguments

using Bound = std::vector<std::optional<JinjaValue>>;

bool flag(const std::optional<JinjaValue>& argument, bool otherwise) {
  return argument ? argument->truth() : otherwise;
}

std::int64_t whole(const std::optional<JinjaValue>& argument, std::int64_t otherwise) {
  if (!argument) return otherwise;
  if (const auto value = argument->whole()) return *value;
  throw JinjaProblem{"an argument of a filter is no int", "an int", argument->type()};
}

std::string text(const std::optional<JinjaValue>& argument, const std::string& otherwise) {
  return argument ? argument->text() : otherwise;
}

void refuse_arguments(const std::string& filter, const JinjaCall& call) { call.bind(filter, {}); }

// The value of "a.b.0" in an item.
JinjaValue value_at(const JinjaValue& item, const JinjaValue& path) {
  if (path.whole()) return item_of(item, path);
  JinjaValue value = item;
  const std::string dot = ".";
  for (const std::string& part : split(path.text(), &dot, -1, false)) {
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    value = item_of(value, is_number ? JinjaValue(std::stoll(part)) : JinjaValue(part));
  }
  return value;
}

JinjaValue without_case(const JinjaValue& value) {
  return value.string() ? JinjaValue(to_lower(*value.string())) : value;
}

// --- numbers

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
  const Bound bound = call.bind("int", {"default", "base"});
  if (bound[1] && whole(bound[1], 10) != 10)
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
  const Bound bound = call.bind("float", {"default"});
  if (const JinjaUndefined* undefined = value.undefined()) throw JinjaProblem{undefined->what};
  std::optional<double> number = value.number();
  if (value.string()) number = parsed_real(*value.string());
  return number ? JinjaValue(*number) : bound[0].value_or(JinjaValue(0.0));
}

JinjaValue rounded(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("round", {"precision", "method"});
  const std::string method = text(bound[1], "common");
  if (!value.number()) throw JinjaProblem{"the filter 'round' needs a number", "", value.type()};
  const std::int64_t digits = std::clamp<std::int64_t>(whole(bound[0], 0), -15, 15);
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

// --- texts

template <std::string (*Change)(std::string_view)>
JinjaValue changed(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("a filter of texts", call);
  return Change(value.text());
}

JinjaValue trimmed(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("trim", {"chars"});
  const std::string set = text(bound[0], "");
  const std::string all = value.text();
  return strip(all, bound[0] && !bound[0]->is_none() ? &set : nullptr, true, true);
}

JinjaValue replaced(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("replace", {"old", "new", "count"});
  if (!bound[0] || !bound[1])
    throw JinjaProblem{"the filter 'replace' needs two texts", "old, new"};
  std::string made = replace(value.text(), bound[0]->text(), bound[1]->text(),
                             bound[2] && !bound[2]->is_none() ? whole(bound[2], -1) : -1);
  call.meter.text(static_cast<std::int64_t>(made.size()));
  return made;
}

JinjaValue indented(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("indent", {"width", "first", "blank"});
  if (!value.string())
    throw JinjaProblem{"the filter 'indent' needs a text", "a str", value.type()};
  const std::int64_t width = bound[0] && bound[0]->string() ? 0 : whole(bound[0], 4);
  call.meter.text(std::max<std::int64_t>(width, 0));
  const std::string indent =
      bound[0] && bound[0]->string()
          ? *bound[0]->string()
          : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  std::string made = flag(bound[1], false) ? indent : "";
  bool first = true;
  for (const std::string& line : split_lines(value.text() + "\n")) {
    call.meter.text(static_cast<std::int64_t>(made.size() + line.size() + indent.size()) / 64);
    if (!first) made += "\n" + (line.empty() && !flag(bound[2], false) ? "" : indent);
    made += line;
    first = false;
  }
  return made;
}

JinjaValue centred(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("center", {"width"});
  const std::string all = value.text();
  const std::int64_t width = whole(bound[0], 80), length = character_count(all);
  call.meter.text(std::max<std::int64_t>(width, 0));
  const std::int64_t pad = std::max<std::int64_t>(width - length, 0);
  const std::int64_t left = pad / 2 + (pad & width & 1);
  return std::string(static_cast<std::size_t>(left), ' ') + all +
         std::string(static_cast<std::size_t>(pad - left), ' ');
}

JinjaValue to_json(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonLayout layout{.ascii = flag(bound[0], false), .sort_keys = flag(bound[3], false)};
  if (bound[1] && !bound[1]->is_none()) {
    const std::int64_t width = bound[1]->string() ? 0 : whole(bound[1], 0);
    call.meter.text(std::max<std::int64_t>(width, 0));
    layout.indent =
        bound[1]->string()
            ? *bound[1]->string()
            : std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    layout.item_separator = ",";
  }
  if (bound[2] && !bound[2]->is_none()) {
    const Values both = bound[2]->items();
    if (both.size() != 2 || !both[0].string() || !both[1].string())
      throw JinjaProblem{"the separators of 'tojson' are not two texts", "(',', ':')"};
    layout.item_separator = *both[0].string();
    layout.key_separator = *both[1].string();
  }
  return json_text(value, layout, call.meter);
}

JinjaValue words_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("wordcount", call);
  return word_count(value.text());
}

// --- lists and dicts

JinjaValue joined(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("join", {"d", "attribute"});
  const std::string between = text(bound[0], "");
  std::string made;
  bool first = true;
  for (const JinjaValue& item : value.items()) {
    if (!std::exchange(first, false)) made += between;
    made += (bound[1] && !bound[1]->is_none() ? value_at(item, *bound[1]) : item).text();
    call.meter.text(static_cast<std::int64_t>(made.size()) / 64);
  }
  call.meter.text(static_cast<std::int64_t>(made.size()));
  return made;
}

JinjaValue length_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("length", call);
  return value.length();
}

JinjaValue first_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("first", call);
  const Values items = value.items();
  return items.empty() ? JinjaUndefined{"an empty list has no first item"} : items.front();
}

JinjaValue last_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("last", call);
  const Values items = value.items();
  return items.empty() ? JinjaUndefined{"an empty list has no last item"} : items.back();
}

JinjaValue list_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("list", call);
  return JinjaValue::list(value.items());
}

JinjaValue items_of(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("items", call);
  if (value.undefined()) return jinja_generator({});
  if (!value.dict()) throw JinjaProblem{"the filter 'items' needs a dict", "a dict", value.type()};
  Values items;
  for (const auto& [key, item] : value.dict()->items())
    items.push_back(JinjaValue::tuple({key, item}));
  return jinja_generator(std::move(items));
}

JinjaValue reversed(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("reverse", call);
  if (value.string()) return slice_of(*value.string(), std::nullopt, std::nullopt, -1);
  Values items = value.items();
  std::ranges::reverse(items);
  return jinja_generator(std::move(items));
}

JinjaValue sort_key(const JinjaValue& item, const std::optional<JinjaValue>& path, bool with_case) {
  const JinjaValue key = path && !path->is_none() ? value_at(item, *path) : item;
  return with_case ? key : without_case(key);
}

// The keys by which `sort` compares, as a list: by the attributes "a,b", or the item itself.
JinjaValue sort_keys(const JinjaValue& item, const std::optional<JinjaValue>& paths,
                     bool with_case) {
  if (!paths || !paths->string()) return JinjaValue::list({sort_key(item, paths, with_case)});
  const std::string comma = ",";
  Values keys;
  for (const std::string& path : split(*paths->string(), &comma, -1, false))
    keys.push_back(sort_key(item, JinjaValue(path), with_case));
  return JinjaValue::list(std::move(keys));
}

// A tree stays whole whatever the order of its keys is, as of NaN.
template <typename Key>
Values sorted(const Values& items, bool descending, const Key& key) {
  const auto before = [descending](const JinjaValue& a, const JinjaValue& b) {
    return descending ? compare(b, a) < 0 : compare(a, b) < 0;
  };
  std::multimap<JinjaValue, JinjaValue, decltype(before)> keyed(before);
  for (const JinjaValue& item : items) keyed.emplace(key(item), item);
  Values made;
  for (const auto& [each, item] : keyed) made.push_back(item);
  return made;
}

JinjaValue sorted_list(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("sort", {"reverse", "case_sensitive", "attribute"});
  return JinjaValue::list(sorted(value.items(), flag(bound[0], false), [&](const JinjaValue& item) {
    return sort_keys(item, bound[2], flag(bound[1], false));
  }));
}

JinjaValue sorted_dict(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = text(bound[1], "key");
  if (by != "key" && by != "value")
    throw JinjaProblem{"the filter 'dictsort' sorts by key or value", "key or value", by};
  if (!value.dict())
    throw JinjaProblem{"the filter 'dictsort' needs a dict", "a dict", value.type()};
  Values items;
  for (const auto& [key, item] : value.dict()->items())
    items.push_back(JinjaValue::tuple({key, item}));
  const JinjaValue path = std::int64_t{by == "key" ? 0 : 1};
  return JinjaValue::list(sorted(items, flag(bound[2], false), [&](const JinjaValue& item) {
    return sort_key(item, path, flag(bound[0], false));
  }));
}

JinjaValue unique(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("unique", {"case_sensitive", "attribute"});
  JinjaDict seen;
  Values made;
  for (const JinjaValue& item : value.items()) {
    JinjaValue key = bound[1] && !bound[1]->is_none() ? value_at(item, *bound[1]) : item;
    if (!flag(bound[0], false)) key = without_case(key);
    if (seen.find(key)) continue;
    seen.set(key, true);
    made.push_back(item);
  }
  return jinja_generator(std::move(made));
}

JinjaValue sum_of(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("sum", {"attribute", "start"});
  JinjaValue sum = bound[1].value_or(JinjaValue(std::int64_t{0}));
  for (const JinjaValue& item : value.items())
    sum = operate("+", sum, bound[0] && !bound[0]->is_none() ? value_at(item, *bound[0]) : item,
                  call.meter);
  return sum;
}

template <int Sign>
JinjaValue extreme(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind(Sign < 0 ? "min" : "max", {"case_sensitive", "attribute"});
  const Values items = sorted(value.items(), Sign > 0, [&](const JinjaValue& item) {
    return sort_key(item, bound[1], flag(bound[0], false));
  });
  return items.empty() ? JinjaUndefined{"an empty list has no extreme"} : items.front();
}

JinjaValue batches(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("batch", {"linecount", "fill_with"});
  const std::int64_t size = whole(bound[0], 0);
  if (size < 1) throw JinjaProblem{"the filter 'batch' needs a size", "at least 1"};
  if (bound[1] && !bound[1]->is_none()) call.meter.items(size);
  Values made, batch;
  for (JinjaValue& item : value.items()) {
    if (static_cast<std::int64_t>(batch.size()) == size)
      made.push_back(JinjaValue::list(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    if (bound[1] && !bound[1]->is_none()) batch.resize(static_cast<std::size_t>(size), *bound[1]);
    made.push_back(JinjaValue::list(std::move(batch)));
  }
  return jinja_generator(std::move(made));
}

// Jinja maps and selects nothing from None, 0 or False.
Values items_or_none(const JinjaValue& value) { return value.truth() ? value.items() : Values(); }

JinjaValue mapped(const JinjaValue& value, const JinjaCall& call) {
  Values made;
  if (call.arguments.empty()) {
    const Bound bound = call.bind("map", {"attribute", "default"});
    if (!bound[0]) throw JinjaProblem{"the filter 'map' needs a filter or an attribute"};
    for (const JinjaValue& item : items_or_none(value)) {
      JinjaValue mapped = value_at(item, *bound[0]);
      made.push_back(mapped.undefined() && bound[1] ? *bound[1] : mapped);
    }
  } else {
    const std::string name = call.arguments.front().text();
    const JinjaCall rest{
        {call.arguments.begin() + 1, call.arguments.end()}, call.named, call.meter};
    for (const JinjaValue& item : items_or_none(value))
      made.push_back(apply_filter(name, item, rest));
  }
  return jinja_generator(std::move(made));
}

// select, reject, selectattr, rejectattr
template <bool Keeps, bool ByAttribute>
JinjaValue selected(const JinjaValue& value, const JinjaCall& call) {
  constexpr std::size_t kBefore = ByAttribute ? 1 : 0;
  if (ByAttribute && call.arguments.empty())
    throw JinjaProblem{"a filter by attribute needs the name of an attribute"};
  const bool has_test = call.arguments.size() > kBefore;
  const std::string test = has_test ? call.arguments[kBefore].text() : "";
  JinjaCall rest{{}, call.named, call.meter};
  if (has_test) rest.arguments.assign(call.arguments.begin() + kBefore + 1, call.arguments.end());
  Values made;
  for (const JinjaValue& item : items_or_none(value)) {
    const JinjaValue tested = ByAttribute ? value_at(item, call.arguments.front()) : item;
    if ((has_test ? apply_test(test, tested, rest) : tested.truth()) == Keeps) made.push_back(item);
  }
  return jinja_generator(std::move(made));
}

// --- any value

JinjaValue defaulted(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("default", {"default_value", "boolean"});
  const bool lacks = value.undefined() || (flag(bound[1], false) && !value.truth());
  return lacks ? bound[0].value_or(JinjaValue("")) : value;
}

JinjaValue attribute_filter(const JinjaValue& value, const JinjaCall& call) {
  const Bound bound = call.bind("attr", {"name"});
  if (!bound[0]) throw JinjaProblem{"the filter 'attr' needs a name"};
  if (value.dict() || value.object()) {
    if (JinjaObject* object = value.object())
      if (auto attribute = object->attribute(bound[0]->text())) return *attribute;
    if (value.object()) return JinjaUndefined{"there is no such attribute"};
  }
  throw JinjaProblem{"the filter 'attr' is not supported for this value", "a namespace",
                     value.type()};
}

JinjaValue text_filter(const JinjaValue& value, const JinjaCall& call) {
  refuse_arguments("string", call);
  return value.text();
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = {
      {"abs", absolute},
      {"attr", attribute_filter},
      {"batch", batches},
      {"capitalize", changed<capitalize>},
      {"center", centred},
      {"count", length_of},
      {"d", defaulted},
      {"default", defaulted},
      {"dictsort", sorted_dict},
      {"first", first_of},
      {"float", to_float},
      {"indent", indented},
      {"int", to_int},
      {"items", items_of},
      {"join", joined},
      {"last", last_of},
      {"length", length_of},
      {"list", list_of},
      {"lower", changed<to_lower>},
      {"map", mapped},
      {"max", extreme<1>},
      {"min", extreme<-1>},
      {"reject", selected<false, false>},
      {"rejectattr", selected<false, true>},
      {"replace", replaced},
      {"reverse", reversed},
      {"round", rounded},
      {"select", selected<true, false>},
      {"selectattr", selected<true, true>},
      {"sort", sorted_list},
      {"string", text_filter},
      {"sum", sum_of},
      {"tojson", to_json},
      {"trim", trimmed},
      {"unique", unique},
      {"upper", changed<to_upper>},
      {"wordcount", words_of},
  };
  return all;
}

}  // namespace

JinjaValue apply_filter(const std::string& name, const JinjaValue& value, const JinjaCall& call) {
  const auto found = filters().find(name);
  if (found == filters().end())
    throw JinjaProblem{"Strata does not support this filter", "", quote(name)};
  call.meter.step();
  return found->second(value, call);
}

void check_filter(const std::string& name, JinjaPlace, const JinjaTokenReader& reader) {
  if (filters().contains(name)) return;
  std::vector<std::string> known;
  for (const auto& [each, filter] : filters()) known.push_back(each);
  const std::string nearest = nearest_name(name, known);
  reader.refuse("Strata does not support the filter " + quote(name),
                nearest.empty() ? "" : "perhaps '" + nearest + "'");
}

}  // namespace strata
