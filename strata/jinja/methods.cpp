// The attributes and methods of values: `value.name` and `value[key]`.
#include <algorithm>
#include <array>
#include <map>

#include "strata/jinja/python_text.h"
#include "strata/jinja/value.h"

namespace strata {
namespace {

using Bound = std::vector<std::optional<JinjaValue>>;

const std::string& str_argument(const std::optional<JinjaValue>& argument,
                                const std::string& method) {
  if (argument && argument->string()) return *argument->string();
  throw JinjaProblem{"an argument of " + method + " is no text", "a str",
                     argument ? argument->type() : "nothing"};
}

std::int64_t int_argument(const std::optional<JinjaValue>& argument, std::int64_t otherwise) {
  if (!argument || argument->is_none()) return otherwise;
  if (const auto value = argument->whole()) return *value;
  throw JinjaProblem{"an argument is no int", "an int", argument->type()};
}

JinjaValue list_of(const std::vector<std::string>& texts) {
  std::vector<JinjaValue> items(texts.begin(), texts.end());
  return JinjaValue::list(std::move(items));
}

// --- str

using TextMethod = JinjaValue (*)(const std::string&, const std::string&, const JinjaCall&);

template <bool Left, bool Right>
JinjaValue stripped(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"chars"});
  const bool has_set = bound[0] && !bound[0]->is_none();
  return strip(text, has_set ? &str_argument(bound[0], method) : nullptr, Left, Right);
}

template <bool FromRight>
JinjaValue parts(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"sep", "maxsplit"});
  const bool has_separator = bound[0] && !bound[0]->is_none();
  const std::string* separator = has_separator ? &str_argument(bound[0], method) : nullptr;
  if (separator && separator->empty()) throw JinjaProblem{"a separator is empty"};
  call.meter.text(static_cast<std::int64_t>(text.size()));
  return list_of(split(text, separator, int_argument(bound[1], -1), FromRight));
}

// startswith and endswith: of a text or of any of a tuple.
template <bool AtEnd>
JinjaValue borders(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"prefix"});
  const auto fits = [&](const std::string& part) {
    return AtEnd ? text.ends_with(part) : text.starts_with(part);
  };
  if (bound[0] && bound[0]->sequence() && bound[0]->sequence()->kind == JinjaSequenceKind::kTuple)
    return std::ranges::any_of(bound[0]->sequence()->items, [&](const JinjaValue& part) {
      return fits(str_argument(part, method));
    });
  return fits(str_argument(bound[0], method));
}

template <std::string (*Change)(std::string_view)>
JinjaValue changed(const std::string& text, const std::string& method, const JinjaCall& call) {
  call.bind(method, {});
  return Change(text);
}

JinjaValue replaced(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"old", "new", "count"});
  const std::string& from = str_argument(bound[0], method);
  const std::string& to = str_argument(bound[1], method);
  const auto most =
      static_cast<std::int64_t>(from.empty() ? text.size() + 1 : text.size() / from.size());
  call.meter.text(static_cast<std::int64_t>(text.size()) +
                  most * static_cast<std::int64_t>(to.size()));
  return replace(text, from, to, int_argument(bound[2], -1));
}

JinjaValue joined(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"iterable"});
  if (!bound[0]) throw JinjaProblem{"str.join needs a list"};
  std::string made;
  bool first = true;
  for (const JinjaValue& item : bound[0]->items()) {
    if (!std::exchange(first, false)) made += text;
    made += str_argument(item, method);
    call.meter.grown(made.size());
  }
  call.meter.text(static_cast<std::int64_t>(made.size()));
  return made;
}

template <bool FromRight>
JinjaValue position(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"sub"});
  const std::string& part = str_argument(bound[0], method);
  const std::size_t at = FromRight ? text.rfind(part) : text.find(part);
  if (at == std::string::npos) return std::int64_t{-1};
  return character_count(std::string_view(text).substr(0, at));
}

JinjaValue index_in(const std::string& text, const std::string& method, const JinjaCall& call) {
  JinjaValue at = position<false>(text, method, call);
  if (*at.integer() < 0) throw JinjaProblem{"a text is not found in another"};
  return at;
}

JinjaValue count_in(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"sub"});
  const std::string& part = str_argument(bound[0], method);
  if (part.empty()) return character_count(text) + 1;
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

JinjaValue lines(const std::string& text, const std::string& method, const JinjaCall& call) {
  call.bind(method, {});
  return list_of(split_lines(text));
}

template <bool AtEnd>
JinjaValue without(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"affix"});
  const std::string& part = str_argument(bound[0], method);
  if (AtEnd && text.ends_with(part)) return text.substr(0, text.size() - part.size());
  if (!AtEnd && text.starts_with(part)) return text.substr(part.size());
  return text;
}

template <bool FromRight>
JinjaValue partitioned(const std::string& text, const std::string& method, const JinjaCall& call) {
  const Bound bound = call.bind(method, {"sep"});
  const std::string& part = str_argument(bound[0], method);
  if (part.empty()) throw JinjaProblem{"a separator is empty"};
  const std::size_t at = FromRight ? text.rfind(part) : text.find(part);
  if (at != std::string::npos)
    return JinjaValue::tuple({text.substr(0, at), part, text.substr(at + part.size())});
  return FromRight ? JinjaValue::tuple({"", "", text}) : JinjaValue::tuple({text, "", ""});
}

JinjaValue are_digits(const std::string& text, const std::string& method, const JinjaCall& call) {
  call.bind(method, {});
  if (std::ranges::any_of(text, [](char byte) { return static_cast<unsigned char>(byte) >= 0x80; }))
    throw JinjaProblem{"str.isdigit is supported for ASCII", "ASCII"};
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

JinjaValue are_spaces(const std::string& text, const std::string& method, const JinjaCall& call) {
  call.bind(method, {});
  return !text.empty() && strip(text, nullptr, true, false).empty();
}

TextMethod method_of_text(const std::string& name) {
  static const std::map<std::string, TextMethod> all = {
      {"strip", stripped<true, true>},
      {"lstrip", stripped<true, false>},
      {"rstrip", stripped<false, true>},
      {"split", parts<false>},
      {"rsplit", parts<true>},
      {"splitlines", lines},
      {"startswith", borders<false>},
      {"endswith", borders<true>},
      {"upper", changed<to_upper>},
      {"lower", changed<to_lower>},
      {"title", changed<to_title>},
      {"capitalize", changed<capitalize>},
      {"replace", replaced},
      {"join", joined},
      {"find", position<false>},
      {"rfind", position<true>},
      {"index", index_in},
      {"count", count_in},
      {"removeprefix", without<false>},
      {"removesuffix", without<true>},
      {"partition", partitioned<false>},
      {"rpartition", partitioned<true>},
      {"isdigit", are_digits},
      {"isspace", are_spaces},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

// --- dict and list

JinjaValue view(std::vector<JinjaValue> items) {
  return JinjaSequence{std::move(items), JinjaSequenceKind::kView};
}

std::optional<JinjaValue> method_of_dict(const JinjaValue& value, const std::string& name) {
  const auto method = [&](auto body) {
    return jinja_function("dict." + name, [value, name, body](const JinjaCall& call) {
      return body(*value.dict(), call, "dict." + name);
    });
  };
  if (name == "get")
    return method([](const JinjaDict& dict, const JinjaCall& call, const std::string& callee) {
      const Bound bound = call.bind(callee, {"key", "default"});
      if (!bound[0]) throw JinjaProblem{"dict.get needs a key"};
      const JinjaValue* found = dict.find(*bound[0]);
      return found ? *found : bound[1].value_or(JinjaValue());
    });
  if (name == "copy")
    return method([](const JinjaDict& dict, const JinjaCall& call, const std::string& callee) {
      call.bind(callee, {});
      return JinjaValue(dict);
    });
  if (name != "items" && name != "keys" && name != "values") return std::nullopt;
  return method([name](const JinjaDict& dict, const JinjaCall& call, const std::string& callee) {
    call.bind(callee, {});
    call.meter.items(static_cast<std::int64_t>(dict.items().size()));
    std::vector<JinjaValue> items;
    for (const auto& [key, item] : dict.items())
      items.push_back(name == "items"  ? JinjaValue::tuple({key, item})
                      : name == "keys" ? key
                                       : item);
    return view(std::move(items));
  });
}

std::optional<JinjaValue> method_of_list(const JinjaValue& value, const std::string& name) {
  if (name != "index" && name != "count") return std::nullopt;
  return jinja_function("list." + name, [value, name](const JinjaCall& call) -> JinjaValue {
    const Bound bound = call.bind("list." + name, {"value"});
    if (!bound[0]) throw JinjaProblem{"list." + name + " needs a value"};
    const auto& items = value.sequence()->items;
    call.meter.items(static_cast<std::int64_t>(items.size()));
    if (name == "count") return static_cast<std::int64_t>(std::ranges::count(items, *bound[0]));
    const auto found = std::ranges::find(items, *bound[0]);
    if (found == items.end()) throw JinjaProblem{"a value is not in a list"};
    return static_cast<std::int64_t>(found - items.begin());
  });
}

// Methods of Python's types that Strata does not have: what a template means by them is refused by
// name instead of being taken for an item or for undefined.
bool is_other_method(const JinjaValue& value, const std::string& name) {
  constexpr std::array kDict = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
  constexpr std::array kList = {"append", "clear",  "copy",    "extend", "insert",
                                "pop",    "remove", "reverse", "sort"};
  constexpr std::array kText = {
      "casefold",  "center",      "encode",   "expandtabs", "format",       "format_map",
      "isalnum",   "isalpha",     "isascii",  "isdecimal",  "isidentifier", "islower",
      "isnumeric", "isprintable", "istitle",  "isupper",    "ljust",        "maketrans",
      "rindex",    "rjust",       "swapcase", "translate",  "zfill"};
  const auto has = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (name.starts_with("__")) return true;
  if (value.dict()) return has(kDict);
  if (value.sequence()) return has(kList);
  return value.string() && has(kText);
}

std::optional<JinjaValue> method_of(const JinjaValue& value, const std::string& name) {
  if (JinjaObject* object = value.object()) return object->attribute(name);
  if (value.dict()) {
    if (auto method = method_of_dict(value, name)) return method;
  } else if (value.sequence()) {
    if (auto method = method_of_list(value, name)) return method;
  } else if (value.string()) {
    if (const TextMethod method = method_of_text(name))
      return jinja_function("str." + name, [value, name, method](const JinjaCall& call) {
        return method(*value.string(), "str." + name, call);
      });
  }
  if (is_other_method(value, name))
    throw JinjaProblem{"Strata does not support '" + name + "' of a " + value.type()};
  return std::nullopt;
}

std::optional<JinjaValue> item_by_key(const JinjaValue& value, const JinjaValue& key) {
  if (const JinjaDict* dict = value.dict()) {
    const JinjaValue* found = dict->find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  const auto at = key.whole();
  if (!at || (!value.sequence() && !value.string())) return std::nullopt;
  if (value.sequence() && value.sequence()->kind == JinjaSequenceKind::kView) return std::nullopt;
  const std::int64_t length = value.length();
  const std::int64_t position = *at < 0 ? *at + length : *at;
  if (position < 0 || position >= length) return std::nullopt;
  if (const JinjaSequence* list = value.sequence())
    return list->items[static_cast<std::size_t>(position)];
  return JinjaValue(slice_of(*value.string(), position, position + 1, 1));
}

JinjaValue missing(const JinjaValue& value, const JinjaValue& name) {
  if (value.undefined()) throw JinjaProblem{value.undefined()->what};
  return JinjaUndefined{"a " + value.type() + " has no " +
                        (name.string() ? "'" + *name.string() + "'" : "item " + name.repr())};
}

}  // namespace

JinjaValue attribute_of(const JinjaValue& value, const std::string& name) {
  if (auto method = method_of(value, name)) return *std::move(method);
  if (auto item = item_by_key(value, name)) return *std::move(item);
  return missing(value, name);
}

JinjaValue item_of(const JinjaValue& value, const JinjaValue& key) {
  if (auto item = item_by_key(value, key)) return *std::move(item);
  if (key.string())
    if (auto method = method_of(value, *key.string())) return *std::move(method);
  return missing(value, key);
}

}  // namespace strata
