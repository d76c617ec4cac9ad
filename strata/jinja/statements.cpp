#include "strata/jinja/statements.h"

#include <algorithm>
#include <optional>

#include "strata/jinja/filters.h"

namespace strata {
namespace {

/// What a template sees as `loop`.
class Loop : public JinjaObject {
 public:
  explicit Loop(std::vector<JinjaValue> items) : items_(std::move(items)) {}

  std::string type() const override { return "loop"; }
  std::size_t size() const { return items_.size(); }
  const JinjaValue& begin_round(std::size_t round) { return items_[round_ = round]; }

  std::optional<JinjaValue> attribute(const std::string& name) const override {
    const auto round = static_cast<std::int64_t>(round_);
    const auto size = static_cast<std::int64_t>(items_.size());
    if (name == "index") return round + 1;
    if (name == "index0") return round;
    if (name == "revindex") return size - round;
    if (name == "revindex0") return size - round - 1;
    if (name == "first") return round == 0;
    if (name == "last") return round + 1 == size;
    if (name == "length") return size;
    if (name == "depth") return 1;  // a recursive loop, which has more, is not supported
    if (name == "depth0") return 0;
    if (name == "previtem")
      return round > 0 ? items_[round_ - 1] : JinjaUndefined{"there is no previous item"};
    if (name == "nextitem")
      return round + 1 < size ? items_[round_ + 1] : JinjaUndefined{"there is no next item"};
    if (name == "cycle") return cycle(round_);
    if (name == "changed") return changed();
    return std::nullopt;
  }

 private:
  static JinjaValue cycle(std::size_t round) {
    return jinja_function("loop.cycle", [round](const JinjaCall& call) {
      if (call.arguments.empty()) throw JinjaProblem{"loop.cycle has no arguments"};
      return call.arguments[round % call.arguments.size()];
    });
  }

  JinjaValue changed() const {
    return jinja_function("loop.changed", [last = last_](const JinjaCall& call) -> JinjaValue {
      if (*last && **last == call.arguments) return false;
      *last = call.arguments;
      return true;
    });
  }

  std::vector<JinjaValue> items_;
  std::size_t round_ = 0;
  std::shared_ptr<std::optional<std::vector<JinjaValue>>> last_ =
      std::make_shared<std::optional<std::vector<JinjaValue>>>();
};

/// A macro, or the body of a call block, with the scope that it was made in.
class MacroObject : public JinjaObject {
 public:
  MacroObject(const JinjaSignature& signature, const JinjaFrame& frame)
      : signature_(signature), frame_(frame) {}

  std::string type() const override { return "macro " + signature_.name; }
  bool is_callable() const override { return true; }
  std::optional<JinjaValue> attribute(const std::string& name) const override {
    if (name == "name") return signature_.name;
    return std::nullopt;
  }

  JinjaValue call(const JinjaCall& call) override {
    std::vector<std::string> parameters = signature_.parameters;
    parameters.emplace_back("caller");  // the body of a call block comes by this name
    if (call.arguments.size() > signature_.parameters.size())
      throw JinjaProblem{type() + " has too many arguments",
                         "at most " + std::to_string(signature_.parameters.size()),
                         std::to_string(call.arguments.size())};
    const auto values = call.bind(type(), parameters);
    JinjaFrame frame = frame_.inside();
    const std::size_t without_default = signature_.parameters.size() - signature_.defaults.size();
    for (std::size_t i = 0; i < values.size(); ++i) {
      JinjaValue& value = frame.scope->names[parameters[i]];
      if (values[i])
        value = *values[i];
      else if (i >= without_default && i < signature_.parameters.size())
        value = signature_.defaults[i - without_default]->value(frame);
      else
        value = JinjaUndefined{"parameter '" + parameters[i] + "' was not passed"};
    }
    std::string text;
    signature_.body.run(frame, text);
    return text;
  }
  void clear() override { frame_.scope.reset(); }

 private:
  const JinjaSignature& signature_;
  JinjaFrame frame_;
};

JinjaValue macro_of(const JinjaSignature& signature, const JinjaFrame& frame) {
  return frame.meter.own(std::make_shared<MacroObject>(signature, frame));
}

std::string filtered(std::string text, const std::vector<JinjaBodyFilter>& filters,
                     JinjaFrame& frame) {
  JinjaValue value = std::move(text);
  for (const JinjaBodyFilter& filter : filters)
    value = apply_filter(filter.name, value, filter.arguments.call(frame));
  return value.text();
}

}  // namespace

JinjaFlow JinjaBody::run(JinjaFrame& frame, std::string& output) const {
  for (const auto& statement : statements)
    if (const JinjaFlow flow = statement->run(frame, output); flow != JinjaFlow::kNext) return flow;
  return JinjaFlow::kNext;
}

std::string JinjaBody::text(JinjaFrame frame) const {
  JinjaFrame inside = frame.inside();
  std::string text;
  run(inside, text);
  return text;
}

void JinjaTarget::assign(const JinjaValue& value, JinjaFrame& frame) const {
  if (!attribute.empty()) {
    const JinjaValue* object = frame.scope->find(name);
    if (!object || !object->object())
      throw JinjaProblem{"'" + name + "' is no namespace", "namespace()",
                         object ? object->type() : "undefined"};
    object->object()->set_attribute(attribute, value);
  } else if (items.empty()) {
    frame.scope->names[name] = value;
  } else {
    const std::vector<JinjaValue> parts = value.items();
    if (parts.size() != items.size())
      throw JinjaProblem{"a value has another number of items than there are names",
                         std::to_string(items.size()), std::to_string(parts.size())};
    for (std::size_t i = 0; i < parts.size(); ++i) items[i].assign(parts[i], frame);
  }
}

JinjaFlow JinjaTextOutput::perform(JinjaFrame&, std::string& output) const {
  output += text;
  return JinjaFlow::kNext;
}

JinjaFlow JinjaPrint::perform(JinjaFrame& frame, std::string& output) const {
  output += expression->value(frame).text();
  return JinjaFlow::kNext;
}

JinjaFlow JinjaIf::perform(JinjaFrame& frame, std::string& output) const {
  for (const auto& [condition, body] : cases)
    if (!condition || condition->value(frame).truth()) return body.run(frame, output);
  return JinjaFlow::kNext;
}

JinjaFlow JinjaFor::perform(JinjaFrame& frame, std::string& output) const {
  std::vector<JinjaValue> visited;
  for (JinjaValue& item : items->value(frame).items()) {
    if (condition) {
      JinjaFrame test = frame.inside();
      target.assign(item, test);
      if (!condition->value(test).truth()) continue;
    }
    visited.push_back(std::move(item));
  }
  const auto loop = std::make_shared<Loop>(std::move(visited));
  bool completed = false;  // a round: Jinja runs `else` also if every round was left
  for (std::size_t round = 0; round < loop->size(); ++round) {
    JinjaFrame inside = frame.inside();  // what a round sets ends with it
    inside.scope->names["loop"] = std::shared_ptr<JinjaObject>(loop);
    target.assign(loop->begin_round(round), inside);
    const JinjaFlow flow = body.run(inside, output);
    if (flow == JinjaFlow::kNext) completed = true;
    if (flow == JinjaFlow::kBreak) break;
  }
  if (completed) return JinjaFlow::kNext;
  JinjaFrame inside = frame.inside();
  return otherwise.run(inside, output);
}

JinjaFlow JinjaSet::perform(JinjaFrame& frame, std::string&) const {
  target.assign(value->value(frame), frame);
  return JinjaFlow::kNext;
}

JinjaFlow JinjaFilteredBody::perform(JinjaFrame& frame, std::string& output) const {
  std::string text = filtered(body.text(frame), filters, frame);
  if (target.name.empty())
    output += text;
  else
    target.assign(std::move(text), frame);
  return JinjaFlow::kNext;
}

JinjaFlow JinjaWith::perform(JinjaFrame& frame, std::string& output) const {
  JinjaFrame inside = frame.inside();
  for (const auto& [name, value] : values) name.assign(value->value(frame), inside);
  return body.run(inside, output);
}

JinjaFlow JinjaMacro::perform(JinjaFrame& frame, std::string&) const {
  frame.scope->names[signature.name] = macro_of(signature, frame);
  return JinjaFlow::kNext;
}

JinjaFlow JinjaCallBlock::perform(JinjaFrame& frame, std::string& output) const {
  const JinjaValue macro = callee->value(frame);
  if (const JinjaUndefined* undefined = macro.undefined()) throw JinjaProblem{undefined->what};
  if (!macro.object())
    throw JinjaProblem{"a value is called that is no function", "a macro", macro.type()};
  JinjaCall call = arguments.call(frame);
  call.named.emplace_back("caller", macro_of(signature, frame));
  frame.meter.enter();
  output += macro.object()->call(call).text();
  frame.meter.leave();
  return JinjaFlow::kNext;
}

JinjaFlow JinjaGeneration::perform(JinjaFrame& frame, std::string& output) const {
  output += body.text(frame);
  return JinjaFlow::kNext;
}

}  // namespace strata
