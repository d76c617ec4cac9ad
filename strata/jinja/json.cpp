#include "strata/jinja/json.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "strata/jinja/python_text.h"

namespace strata {
namespace {

std::string quoted(const std::string& text, bool ascii) {
  return nlohmann::json(text).dump(-1, ' ', ascii, nlohmann::json::error_handler_t::replace);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return text_of(value);
}

class JsonWriter {
 public:
  JsonWriter(const JsonLayout& layout, JinjaMeter& meter) : layout_(layout), meter_(meter) {}

  void write(const JinjaValue& value, int depth) {
    meter_.step();
    if (const std::string* text = value.string())
      text_ += quoted(*text, layout_.ascii);
    else if (const JinjaDict* dict = value.dict())
      write(*dict, depth);
    else if (const JinjaSequence* list = value.sequence();
             list && list->kind != JinjaSequenceKind::kView)
      write(*list, depth);
    else
      text_ += scalar(value);
    meter_.grown(text_.size());
  }

  std::string text() && { return std::move(text_); }

 private:
  static std::string scalar(const JinjaValue& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.boolean()) return *flag ? "true" : "false";
    if (const std::int64_t* number = value.integer()) return std::to_string(*number);
    if (const double* number = value.real()) return number_text(*number);
    throw JinjaProblem{"JSON cannot express a value",
                       "None, bool, int, float, str, list, tuple or dict", value.type()};
  }

  void begin_line(int depth) {
    if (!layout_.indent) return;
    text_ += '\n';
    for (int i = 0; i < depth; ++i) text_ += *layout_.indent;
  }

  template <typename Items, typename Write>
  void write_items(const Items& items, char open, char close, int depth, const Write& write_item) {
    text_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!std::exchange(first, false)) text_ += layout_.item_separator;
      begin_line(depth + 1);
      write_item(item);
    }
    if (!items.empty()) begin_line(depth);
    text_ += close;
  }

  void write(const JinjaSequence& list, int depth) {
    write_items(list.items, '[', ']', depth,
                [&](const JinjaValue& item) { write(item, depth + 1); });
  }

  void write(const JinjaDict& dict, int depth) {
    std::vector<JinjaDict::Item> items = dict.items();
    if (layout_.sort_keys) {
      const auto before = [](const JinjaValue& a, const JinjaValue& b) {
        return compare(a, b) < 0;
      };
      const std::multimap<JinjaValue, JinjaValue, decltype(before)> sorted(items.begin(),
                                                                           items.end(), before);
      items.assign(sorted.begin(), sorted.end());
    }
    write_items(items, '{', '}', depth, [&](const JinjaDict::Item& item) {
      const std::string* key = item.first.string();
      text_ += quoted(key ? *key : scalar(item.first), layout_.ascii) + layout_.key_separator;
      write(item.second, depth + 1);
    });
  }

  const JsonLayout& layout_;
  JinjaMeter& meter_;
  std::string text_;
};

}  // namespace

JinjaValue value_of(const nlohmann::ordered_json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX)
    throw JinjaProblem{"an integer is too large", "at most 2^63 - 1", json.dump()};
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    std::vector<JinjaValue> items;
    for (const auto& item : json) items.push_back(value_of(item));
    return JinjaValue::list(std::move(items));
  }
  JinjaDict dict;
  for (const auto& [key, item] : json.items()) dict.set(key, value_of(item));
  return dict;
}

std::string json_text(const JinjaValue& value, const JsonLayout& layout, JinjaMeter& meter) {
  JsonWriter writer(layout, meter);
  writer.write(value, 0);
  return std::move(writer).text();
}

}  // namespace strata
