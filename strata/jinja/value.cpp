#include "strata/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "strata/jinja/python_text.h"

namespace strata {
namespace {

template <typename Items, typename Write>
std::string joined(const Items& items, const Write& write) {
  std::string text;
  for (const auto& item : items) {
    if (!text.empty()) text += ", ";
    text += write(item);
  }
  return text;
}

std::string repr_of(const JinjaSequence& sequence) {
  const std::string items =
      joined(sequence.items, [](const JinjaValue& item) { return item.repr(); });
  if (sequence.kind == JinjaSequenceKind::kView)
    throw JinjaProblem{"a view has no text of its own", "a list: write it as `| list`"};
  if (sequence.kind == JinjaSequenceKind::kList) return "[" + items + "]";
  return "(" + items + (sequence.items.size() == 1 ? ",)" : ")");
}

std::string repr_of(const JinjaDict& dict) {
  return "{" +
         joined(dict.items(),
                [](const JinjaDict::Item& item) {
                  return item.first.repr() + ": " + item.second.repr();
                }) +
         "}";
}

bool can_be_key(const JinjaValue& value) {
  if (value.dict() || value.object()) return false;
  const JinjaSequence* sequence = value.sequence();
  return !sequence || (sequence->kind == JinjaSequenceKind::kTuple &&
                       std::ranges::all_of(sequence->items, can_be_key));
}

class JinjaFunction : public JinjaObject {
 public:
  JinjaFunction(std::string name, std::function<JinjaValue(const JinjaCall&)> function)
      : name_(std::move(name)), function_(std::move(function)) {}
  std::string type() const override { return "function " + name_; }
  bool is_callable() const override { return true; }
  JinjaValue call(const JinjaCall& call) override { return function_(call); }

 private:
  std::string name_;
  std::function<JinjaValue(const JinjaCall&)> function_;
};

class JinjaGenerator : public JinjaObject {
 public:
  explicit JinjaGenerator(std::vector<JinjaValue> items) : items_(std::move(items)) {}
  std::string type() const override { return "generator"; }
  bool is_iterable() const override { return true; }
  std::vector<JinjaValue> take_items() override { return std::exchange(items_, {}); }

 private:
  std::vector<JinjaValue> items_;
};

}  // namespace

JinjaValue::JinjaValue(JinjaSequence sequence)
    : value_(std::make_shared<const JinjaSequence>(std::move(sequence))) {}
JinjaValue::JinjaValue(JinjaDict dict)
    : value_(std::make_shared<const JinjaDict>(std::move(dict))) {}

JinjaValue JinjaValue::list(std::vector<JinjaValue> items) {
  return JinjaSequence{std::move(items), JinjaSequenceKind::kList};
}
JinjaValue JinjaValue::tuple(std::vector<JinjaValue> items) {
  return JinjaSequence{std::move(items), JinjaSequenceKind::kTuple};
}

std::optional<std::int64_t> JinjaValue::whole() const {
  if (const bool* flag = boolean()) return *flag ? 1 : 0;
  if (const std::int64_t* value = integer()) return *value;
  return std::nullopt;
}

std::optional<double> JinjaValue::number() const {
  if (const double* value = real()) return *value;
  if (const auto value = whole()) return static_cast<double>(*value);
  return std::nullopt;
}

bool JinjaValue::truth() const {
  if (is_none() || undefined()) return false;
  if (const auto value = number()) return *value != 0;
  if (const std::string* text = string()) return !text->empty();
  if (const JinjaSequence* each = sequence()) return !each->items.empty();
  if (const JinjaDict* each = dict()) return !each->items().empty();
  return true;
}

std::string JinjaValue::text() const {
  if (const std::string* text = string()) return *text;
  return undefined() ? "" : repr();
}

std::string JinjaValue::repr() const {
  if (is_none()) return "None";
  if (undefined()) return "Undefined";
  if (const bool* flag = boolean()) return *flag ? "True" : "False";
  if (const std::int64_t* value = integer()) return std::to_string(*value);
  if (const double* value = real()) return text_of(*value);
  if (const std::string* text = string()) return strata::repr_of(std::string_view(*text));
  if (const JinjaSequence* each = sequence()) return repr_of(*each);
  if (const JinjaDict* each = dict()) return repr_of(*each);
  throw JinjaProblem{"a value that has no text is printed", "a str, number, list or dict", type()};
}

std::string JinjaValue::type() const {
  if (is_none()) return "None";
  if (undefined()) return "undefined";
  if (boolean()) return "bool";
  if (integer()) return "int";
  if (real()) return "float";
  if (string()) return "str";
  if (dict()) return "dict";
  if (const JinjaSequence* each = sequence()) {
    switch (each->kind) {
      case JinjaSequenceKind::kList:
        return "list";
      case JinjaSequenceKind::kTuple:
        return "tuple";
      case JinjaSequenceKind::kView:
        return "view";
    }
  }
  return object()->type();
}

std::vector<JinjaValue> JinjaValue::items() const {
  if (undefined()) return {};
  if (const JinjaSequence* each = sequence()) return each->items;
  std::vector<JinjaValue> all;
  if (const std::string* text = string()) {
    for (const std::string_view character : characters(*text)) all.emplace_back(character);
    return all;
  }
  if (const JinjaDict* each = dict()) {
    for (const auto& [key, value] : each->items()) all.push_back(key);
    return all;
  }
  if (JinjaObject* each = object(); each && each->is_iterable()) return each->take_items();
  throw JinjaProblem{"a value without items is iterated", "a list, dict or str", type()};
}

std::int64_t JinjaValue::length() const {
  if (undefined()) return 0;
  if (const std::string* text = string()) return character_count(*text);
  if (const JinjaSequence* each = sequence()) return static_cast<std::int64_t>(each->items.size());
  if (const JinjaDict* each = dict()) return static_cast<std::int64_t>(each->items().size());
  throw JinjaProblem{"a value has no length", "a list, dict or str", type()};
}

bool operator==(const JinjaValue& a, const JinjaValue& b) {
  if (a.undefined() || b.undefined()) return a.undefined() && b.undefined();
  if (a.whole() && b.whole()) return *a.whole() == *b.whole();
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.string() && b.string()) return *a.string() == *b.string();
  if (a.sequence() && b.sequence())
    return a.sequence()->kind == b.sequence()->kind && a.sequence()->items == b.sequence()->items;
  if (a.dict() && b.dict()) {
    return a.dict()->items().size() == b.dict()->items().size() &&
           std::ranges::all_of(a.dict()->items(), [&](const JinjaDict::Item& item) {
             const JinjaValue* other = b.dict()->find(item.first);
             return other && *other == item.second;
           });
  }
  if (a.object() || b.object()) return a.object() == b.object();
  return a.is_none() && b.is_none();
}

int compare(const JinjaValue& a, const JinjaValue& b) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (a.whole() && b.whole()) return order(*a.whole(), *b.whole());
  if (a.number() && b.number()) return order(*a.number(), *b.number());
  if (a.string() && b.string()) return order(*a.string(), *b.string());  // UTF-8 keeps their order
  const JinjaSequence* left = a.sequence();
  const JinjaSequence* right = b.sequence();
  if (left && right && left->kind == right->kind && left->kind != JinjaSequenceKind::kView) {
    const std::size_t both = std::min(left->items.size(), right->items.size());
    for (std::size_t i = 0; i < both; ++i)
      if (!(left->items[i] == right->items[i])) return compare(left->items[i], right->items[i]);
    return order(left->items.size(), right->items.size());
  }
  throw JinjaProblem{"two values have no order", "two numbers, two str, two lists or two tuples",
                     a.type() + " and " + b.type()};
}

void require_key(const JinjaValue& value) {
  if (!can_be_key(value))
    throw JinjaProblem{"a value cannot be a key of a dict", "a str, number or tuple", value.type()};
}

void JinjaDict::set(const JinjaValue& key, JinjaValue value) {
  require_key(key);
  const std::size_t at = place_of(key);
  if (at < items_.size()) {
    items_[at].second = std::move(value);
    return;
  }
  if (const std::string* text = key.string()) texts_[*text] = items_.size();
  items_.emplace_back(key, std::move(value));
}

std::size_t JinjaDict::place_of(const JinjaValue& key) const {
  if (const std::string* text = key.string()) {
    const auto found = texts_.find(*text);
    return found == texts_.end() ? items_.size() : found->second;
  }
  const auto found =
      std::ranges::find_if(items_, [&](const Item& item) { return item.first == key; });
  return static_cast<std::size_t>(found - items_.begin());
}

const JinjaValue* JinjaDict::find(const JinjaValue& key) const {
  const std::size_t at = place_of(key);
  return at == items_.size() ? nullptr : &items_[at].second;
}

void JinjaMeter::step(std::int64_t steps) {
  if ((steps_ += steps) > kMaxSteps)
    throw JinjaProblem{"the template takes too long",
                       "at most " + std::to_string(kMaxSteps) + " steps"};
}

void JinjaMeter::text(std::int64_t bytes) {
  if (bytes > kMaxTextBytes)
    throw JinjaProblem{"a text is too long", "at most " + std::to_string(kMaxTextBytes) + " bytes",
                       std::to_string(bytes)};
  step(1 + bytes / 256);
}

void JinjaMeter::grown(std::size_t bytes) {
  if (bytes > kMaxTextBytes) text(static_cast<std::int64_t>(bytes));
  step();
}

void JinjaMeter::items(std::int64_t count) {
  if (count > kMaxItems)
    throw JinjaProblem{"a list is too long", "at most " + std::to_string(kMaxItems) + " items",
                       std::to_string(count)};
  step(1 + count);
}

JinjaMeter::~JinjaMeter() {
  for (const auto& object : objects_) object->clear();
}

JinjaValue JinjaMeter::own(std::shared_ptr<JinjaObject> object) {
  step(100);  // each is kept until the end
  objects_.push_back(object);
  return object;
}

void JinjaMeter::enter() {
  if (++depth_ <= kMaxDepth) return;
  --depth_;
  throw JinjaProblem{"macros call one another too deeply",
                     "at most " + std::to_string(kMaxDepth) + " levels"};
}

std::vector<std::optional<JinjaValue>> JinjaCall::bind(
    const std::string& callee, const std::vector<std::string>& parameters) const {
  std::vector<std::optional<JinjaValue>> values(parameters.size());
  if (arguments.size() > parameters.size())
    throw JinjaProblem{callee + " has too many arguments",
                       "at most " + std::to_string(parameters.size()),
                       std::to_string(arguments.size())};
  std::ranges::copy(arguments, values.begin());
  for (const auto& [name, value] : named) {
    const auto found = std::ranges::find(parameters, name);
    if (found == parameters.end())
      throw JinjaProblem{callee + " has no argument '" + name + "'",
                         joined(parameters, [](const std::string& each) { return each; })};
    auto& place = values[static_cast<std::size_t>(found - parameters.begin())];
    if (place) throw JinjaProblem{callee + " has the argument '" + name + "' twice"};
    place = value;
  }
  return values;
}

void JinjaObject::set_attribute(const std::string& name, JinjaValue) {
  throw JinjaProblem{"the attribute '" + name + "' cannot be set", "a namespace", type()};
}

JinjaValue JinjaObject::call(const JinjaCall&) {
  throw JinjaProblem{"a value is called that is no function", "a macro or function", type()};
}

std::vector<JinjaValue> JinjaObject::take_items() {
  throw JinjaProblem{"a value without items is iterated", "a list, dict or str", type()};
}

JinjaValue jinja_function(std::string name, std::function<JinjaValue(const JinjaCall&)> function) {
  return std::shared_ptr<JinjaObject>(
      std::make_shared<JinjaFunction>(std::move(name), std::move(function)));
}

JinjaValue jinja_generator(std::vector<JinjaValue> items) {
  return std::shared_ptr<JinjaObject>(std::make_shared<JinjaGenerator>(std::move(items)));
}

}  // namespace strata
