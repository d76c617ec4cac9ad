// The filters of Jinja that visit the items of lists and dicts.
#include <algorithm>
#include <map>
#include <utility>

#include "strata/jinja/filter_arguments.h"
#include "strata/jinja/filters.h"
#include "strata/jinja/operators.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

using Values = std::vector<JinjaValue>;

// The value of "a.b.0" in an item.
JinjaValue value_at(const JinjaValue& item, const JinjaValue& path) {
  if (path.whole()) return item_of(item, path);
  JinjaValue value = item;
  const std::string dot = ".";
  for (const std::string& part : split(path.text(), &dot, -1, false)) {
    const bool is_number = !part.empty() && part.size() < 18 &&
                           part.find_first_not_of("0123456789") == std::string::npos;
    value = item_of(value, is_number ? JinjaValue(std::stoll(part)) : JinjaValue(part));
  }
  return value;
}

JinjaValue without_case(const JinjaValue& value) {
  return value.string() ? JinjaValue(to_lower(*value.string())) : value;
}

JinjaValue joined(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("join", {"d", "attribute"});
  const std::string between = text_argument(bound[0], "");
  std::string made;
  bool first = true;
  for (const JinjaValue& item : value.items()) {
    if (!std::exchange(first, false)) made += between;
    made += (bound[1] && !bound[1]->is_none() ? value_at(item, *bound[1]) : item).text();
    call.meter.grown(made.size());
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
  const BoundArguments bound = call.bind("sort", {"reverse", "case_sensitive", "attribute"});
  return JinjaValue::list(
      sorted(value.items(), flag_argument(bound[0], false), [&](const JinjaValue& item) {
        return sort_keys(item, bound[2], flag_argument(bound[1], false));
      }));
}

JinjaValue sorted_dict(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = text_argument(bound[1], "key");
  if (by != "key" && by != "value")
    throw JinjaProblem{"the filter 'dictsort' sorts by key or value", "key or value", by};
  if (!value.dict())
    throw JinjaProblem{"the filter 'dictsort' needs a dict", "a dict", value.type()};
  Values items;
  for (const auto& [key, item] : value.dict()->items())
    items.push_back(JinjaValue::tuple({key, item}));
  const JinjaValue path = std::int64_t{by == "key" ? 0 : 1};
  return JinjaValue::list(
      sorted(items, flag_argument(bound[2], false), [&](const JinjaValue& item) {
        return sort_key(item, path, flag_argument(bound[0], false));
      }));
}

JinjaValue unique(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("unique", {"case_sensitive", "attribute"});
  JinjaDict seen;
  Values made;
  for (const JinjaValue& item : value.items()) {
    JinjaValue key = bound[1] && !bound[1]->is_none() ? value_at(item, *bound[1]) : item;
    if (!flag_argument(bound[0], false)) key = without_case(key);
    if (seen.find(key)) continue;
    seen.set(key, true);
    made.push_back(item);
  }
  return jinja_generator(std::move(made));
}

JinjaValue sum_of(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("sum", {"attribute", "start"});
  JinjaValue sum = bound[1].value_or(JinjaValue(std::int64_t{0}));
  for (const JinjaValue& item : value.items())
    sum = operate("+", sum, bound[0] && !bound[0]->is_none() ? value_at(item, *bound[0]) : item,
                  call.meter);
  return sum;
}

template <int Sign>
JinjaValue extreme(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind(Sign < 0 ? "min" : "max", {"case_sensitive", "attribute"});
  const Values items = sorted(value.items(), Sign > 0, [&](const JinjaValue& item) {
    return sort_key(item, bound[1], flag_argument(bound[0], false));
  });
  return items.empty() ? JinjaUndefined{"an empty list has no extreme"} : items.front();
}

JinjaValue batches(const JinjaValue& value, const JinjaCall& call) {
  const BoundArguments bound = call.bind("batch", {"linecount", "fill_with"});
  const std::int64_t size = whole_argument(bound[0], 0);
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
    const BoundArguments bound = call.bind("map", {"attribute", "default"});
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

}  // namespace

const JinjaFilters& list_filters() {
  static const JinjaFilters all = {
      {"batch", batches},
      {"count", length_of},
      {"dictsort", sorted_dict},
      {"first", first_of},
      {"items", items_of},
      {"join", joined},
      {"last", last_of},
      {"length", length_of},
      {"list", list_of},
      {"map", mapped},
      {"max", extreme<1>},
      {"min", extreme<-1>},
      {"reject", selected<false, false>},
      {"rejectattr", selected<false, true>},
      {"reverse", reversed},
      {"select", selected<true, false>},
      {"selectattr", selected<true, true>},
      {"sort", sorted_list},
      {"sum", sum_of},
      {"unique", unique},
  };
  return all;
}

}  // namespace strata
