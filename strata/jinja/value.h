/// Holds the values of a Jinja template, which behave as Python's: None, bool, int, float, str,
/// list, tuple, dict, what is undefined, and objects (namespaces, loops, macros, functions).
///
/// Values are immutable and share their bytes when copied, except the attributes of a namespace.
///
/// Errors  JinjaProblem, which the node of the template that is being evaluated turns into a
///         UserError with its line and column.
/// Source  docs of Jinja 3.1 and of Python; oracle: tests/parity/jinja_test.py.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace strata {

class JinjaDict;
class JinjaObject;
struct JinjaSequence;

/// An operation that the template may not perform on its values.
struct JinjaProblem {
  std::string what;
  std::string expected = "";
  std::string got = "";
};

/// The value of a name or an item that does not exist; `what` says which.
struct JinjaUndefined {
  std::string what;
};

class JinjaValue {
 public:
  JinjaValue() = default;  ///< None
  template <std::same_as<bool> Bool>
  JinjaValue(Bool value) : value_(value) {}
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool>)
  JinjaValue(Integer value) : value_(static_cast<std::int64_t>(value)) {}
  JinjaValue(double value) : value_(value) {}
  JinjaValue(std::string text) : value_(std::make_shared<const std::string>(std::move(text))) {}
  JinjaValue(std::string_view text) : JinjaValue(std::string(text)) {}
  JinjaValue(const char* text) : JinjaValue(std::string(text)) {}
  JinjaValue(JinjaUndefined undefined)
      : value_(std::make_shared<const JinjaUndefined>(std::move(undefined))) {}
  JinjaValue(JinjaSequence sequence);
  JinjaValue(JinjaDict dict);
  JinjaValue(std::shared_ptr<JinjaObject> object) : value_(std::move(object)) {}

  static JinjaValue list(std::vector<JinjaValue> items);
  static JinjaValue tuple(std::vector<JinjaValue> items);

  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  const JinjaUndefined* undefined() const { return pointed<const JinjaUndefined>(); }
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const std::string* string() const { return pointed<const std::string>(); }
  const JinjaSequence* sequence() const { return pointed<const JinjaSequence>(); }
  const JinjaDict* dict() const { return pointed<const JinjaDict>(); }
  JinjaObject* object() const { return pointed<JinjaObject>(); }

  /// The number of a bool or an int.
  std::optional<std::int64_t> whole() const;
  /// The number of a bool, an int or a float.
  std::optional<double> number() const;

  bool truth() const;        ///< bool(value)
  std::string text() const;  ///< str(value); "" if undefined
  std::string repr() const;  ///< repr(value)
  std::string type() const;  ///< the name of its Python type, for errors

  /// The items that a loop visits: of a list or tuple, the characters of a str, the keys of a dict.
  std::vector<JinjaValue> items() const;
  std::int64_t length() const;  ///< len(value)

  friend bool operator==(const JinjaValue& a, const JinjaValue& b);

 private:
  template <typename Type>
  Type* pointed() const {
    const auto* pointer = std::get_if<std::shared_ptr<Type>>(&value_);
    return pointer ? pointer->get() : nullptr;
  }

  std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const JinjaUndefined>, std::shared_ptr<const JinjaSequence>,
               std::shared_ptr<const JinjaDict>, std::shared_ptr<JinjaObject>>
      value_;
};

/// The order of Python: negative, 0 or positive. Problem: types that Python does not order.
int compare(const JinjaValue& a, const JinjaValue& b);

/// A view is what dict.keys() and range() return: it can be visited, but it is neither a list nor a
/// tuple.
enum class JinjaSequenceKind : std::uint8_t { kList, kTuple, kView };

struct JinjaSequence {
  std::vector<JinjaValue> items;
  JinjaSequenceKind kind = JinjaSequenceKind::kList;
};

/// A dict keeps the order in which its keys were added.
class JinjaDict {
 public:
  using Item = std::pair<JinjaValue, JinjaValue>;

  /// Problem: a key that Python cannot hash.
  void set(const JinjaValue& key, JinjaValue value);
  const JinjaValue* find(const JinjaValue& key) const;
  const std::vector<Item>& items() const { return items_; }

 private:
  std::size_t place_of(const JinjaValue& key) const;  // the number of items if it has none

  std::vector<Item> items_;
  std::unordered_map<std::string, std::size_t> texts_;  // of the keys that are str
};

/// Problem: Python cannot hash the value, so that it cannot be a key of a dict.
void require_key(const JinjaValue& value);

/// Bounds what rendering one template may take, and ends the objects that can refer to themselves.
class JinjaMeter {
 public:
  JinjaMeter() = default;
  JinjaMeter(const JinjaMeter&) = delete;
  ~JinjaMeter();  ///< clears the objects

  static constexpr std::int64_t kMaxSteps = 2'000'000;
  static constexpr std::int64_t kMaxTextBytes = std::int64_t{16} << 20;
  static constexpr int kMaxDepth = 64;                ///< of functions that call functions
  static constexpr std::int64_t kMaxItems = 100'000;  ///< of range(), and of a list that is made

  /// Problem: beyond a limit.
  void step(std::int64_t steps = 1);
  void text(std::int64_t bytes);  ///< a text of so many bytes is about to be made
  void grown(std::size_t bytes);  ///< a text that is being made has so many bytes by now
  void items(std::int64_t count);
  void enter();  ///< a function is called; leave() follows
  JinjaValue own(std::shared_ptr<JinjaObject> object);
  void leave() { --depth_; }

 private:
  std::int64_t steps_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<JinjaObject>> objects_;
};

/// The arguments of a call.
struct JinjaCall {
  std::vector<JinjaValue> arguments;
  std::vector<std::pair<std::string, JinjaValue>> named;
  JinjaMeter& meter;

  /// The arguments by parameter; none where the caller passed none. Problem: too many, or an
  /// unknown name.
  std::vector<std::optional<JinjaValue>> bind(const std::string& callee,
                                              const std::vector<std::string>& parameters) const;
};

class JinjaObject {
 public:
  virtual ~JinjaObject() = default;
  virtual std::string type() const = 0;
  virtual std::optional<JinjaValue> attribute(const std::string&) const { return std::nullopt; }
  virtual void set_attribute(const std::string& name, JinjaValue value);
  virtual bool is_callable() const { return false; }
  virtual JinjaValue call(const JinjaCall& call);
  virtual std::vector<JinjaValue> take_items();  ///< a generator gives its items once
  virtual bool is_iterable() const { return false; }
  virtual void clear() {}  ///< drops references to other values; the object is not used again
};

/// A function of the environment, or a method bound to its value.
JinjaValue jinja_function(std::string name, std::function<JinjaValue(const JinjaCall&)> function);

/// What filters such as map and select return: true even if it is empty, without a length, visited
/// once.
JinjaValue jinja_generator(std::vector<JinjaValue> items);

/// The attribute or method that `value.name` means, and the item that `value[key]` means; undefined
/// if there is none.
JinjaValue attribute_of(const JinjaValue& value, const std::string& name);
JinjaValue item_of(const JinjaValue& value, const JinjaValue& key);

}  // namespace strata
