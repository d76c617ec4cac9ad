#include "strata/jinja/globals.h"

#include <array>

namespace strata {
namespace {

class Namespace : public JinjaObject {
 public:
  explicit Namespace(const JinjaDict& values) {
    for (const auto& [name, value] : values.items()) set_attribute(name.text(), value);
  }
  std::string type() const override { return "namespace"; }
  std::optional<JinjaValue> attribute(const std::string& name) const override {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }
  void set_attribute(const std::string& name, JinjaValue value) override {
    if (name.starts_with('_'))
      throw JinjaProblem{"an attribute of a namespace begins with an underscore", "", name};
    values_[name] = std::move(value);
  }
  void clear() override { values_.clear(); }

 private:
  std::map<std::string, JinjaValue> values_;
};

// dict(other, name=value, ...)
JinjaDict dict_of(const JinjaCall& call, const std::string& callee) {
  if (call.arguments.size() > 1)
    throw JinjaProblem{callee + " has too many arguments", "at most 1",
                       std::to_string(call.arguments.size())};
  JinjaDict made;
  if (!call.arguments.empty()) {
    const JinjaValue& first = call.arguments.front();
    if (first.dict()) {
      made = *first.dict();
    } else {
      for (const JinjaValue& pair : first.items()) {
        const std::vector<JinjaValue> both = pair.items();
        if (both.size() != 2) throw JinjaProblem{callee + " needs pairs", "(key, value)"};
        made.set(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : call.named) made.set(name, value);
  call.meter.items(static_cast<std::int64_t>(made.items().size()));
  return made;
}

JinjaValue range(const JinjaCall& call) {
  std::vector<std::int64_t> numbers;
  for (const JinjaValue& argument : call.arguments) {
    if (!argument.whole()) throw JinjaProblem{"range needs ints", "an int", argument.type()};
    numbers.push_back(*argument.whole());
  }
  if (numbers.empty() || numbers.size() > 3 || !call.named.empty())
    throw JinjaProblem{"range has 1 to 3 arguments"};
  const std::int64_t start = numbers.size() > 1 ? numbers[0] : 0;
  const std::int64_t stop = numbers.size() > 1 ? numbers[1] : numbers[0];
  const std::int64_t step = numbers.size() > 2 ? numbers[2] : 1;
  if (step == 0) throw JinjaProblem{"the step of range is 0"};
  const double count =
      (static_cast<double>(stop) - static_cast<double>(start)) / static_cast<double>(step);
  call.meter.items(count > 0 ? static_cast<std::int64_t>(std::min(count + 1, 1e9)) : 0);
  std::vector<JinjaValue> items;
  if (count > 0)
    for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) items.emplace_back(i);
  return JinjaSequence{std::move(items), JinjaSequenceKind::kView};
}

JinjaValue raise_exception(const JinjaCall& call) {
  const auto bound = call.bind("raise_exception", {"message"});
  throw JinjaProblem{"the template refuses its input", "",
                     bound[0] ? bound[0]->text() : "no message"};
}

JinjaValue formatted_time(const JinjaCall& call, std::time_t now) {
  const auto bound = call.bind("strftime_now", {"format"});
  if (!bound[0] || !bound[0]->string()) throw JinjaProblem{"strftime_now needs a format", "a str"};
  if (bound[0]->string()->empty()) return "";
  if (bound[0]->string()->size() > 200)
    throw JinjaProblem{"a format of time is too long", "at most 200 bytes"};
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 20000> text{};
  const std::size_t bytes =
      std::strftime(text.data(), text.size(), bound[0]->string()->c_str(), &local);
  return std::string(text.data(), bytes);
}

}  // namespace

std::map<std::string, JinjaValue> jinja_globals(std::time_t now) {
  return {
      {"range", jinja_function("range", range)},
      {"dict",
       jinja_function("dict",
                      [](const JinjaCall& call) { return JinjaValue(dict_of(call, "dict")); })},
      {"namespace", jinja_function("namespace",
                                   [](const JinjaCall& call) {
                                     return call.meter.own(
                                         std::make_shared<Namespace>(dict_of(call, "namespace")));
                                   })},
      {"raise_exception", jinja_function("raise_exception", raise_exception)},
      {"strftime_now",
       jinja_function("strftime_now",
                      [now](const JinjaCall& call) { return formatted_time(call, now); })},
  };
}

}  // namespace strata
