#include "strata/jinja/expressions.h"

#include "strata/jinja/filters.h"
#include "strata/jinja/operators.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

std::optional<std::int64_t> bound_of(const JinjaExpressionPtr& bound, JinjaFrame& frame) {
  if (!bound) return std::nullopt;
  const JinjaValue value = bound->value(frame);
  if (value.is_none()) return std::nullopt;
  if (!value.whole()) throw JinjaProblem{"a bound of a slice is no number", "an int", value.type()};
  return value.whole();
}

}  // namespace

JinjaCall JinjaArguments::call(JinjaFrame& frame) const {
  JinjaCall made{{}, {}, frame.meter};
  for (const auto& argument : arguments) made.arguments.push_back(argument->value(frame));
  for (const auto& [name, argument] : named) made.named.emplace_back(name, argument->value(frame));
  return made;
}

JinjaValue JinjaName::evaluate(JinjaFrame& frame) const {
  if (const JinjaValue* value = frame.scope->find(name)) return *value;
  return JinjaUndefined{"'" + name + "' is undefined"};
}

JinjaValue JinjaItems::evaluate(JinjaFrame& frame) const {
  JinjaSequence made{{}, kind};
  for (const auto& item : items) made.items.push_back(item->value(frame));
  return made;
}

JinjaValue JinjaDictItems::evaluate(JinjaFrame& frame) const {
  JinjaDict made;
  for (const auto& [key, item] : items) {
    const JinjaValue name = key->value(frame);
    made.set(name, item->value(frame));
  }
  return made;
}

JinjaValue JinjaAttribute::evaluate(JinjaFrame& frame) const {
  return attribute_of(object->value(frame), name);
}

JinjaValue JinjaItem::evaluate(JinjaFrame& frame) const {
  const JinjaValue of = object->value(frame);
  return item_of(of, key->value(frame));
}

JinjaValue JinjaSlice::evaluate(JinjaFrame& frame) const {
  const JinjaValue of = object->value(frame);
  const auto from = bound_of(start, frame), to = bound_of(stop, frame);
  const std::int64_t stride = bound_of(step, frame).value_or(1);
  if (stride == 0) throw JinjaProblem{"the step of a slice is 0"};
  if (const std::string* text = of.string()) return slice_of(*text, from, to, stride);
  const JinjaSequence* list = of.sequence();
  if (of.undefined()) throw JinjaProblem{of.undefined()->what};
  if (!list) throw JinjaProblem{"a value has no slices", "a list, tuple or str", of.type()};
  JinjaSequence made{{}, list->kind};
  for (const std::int64_t i : slice_positions(of.length(), from, to, stride))
    made.items.push_back(list->items[static_cast<std::size_t>(i)]);
  return made;
}

JinjaValue JinjaCallOf::evaluate(JinjaFrame& frame) const {
  const JinjaValue function = callee->value(frame);
  const JinjaCall call = arguments.call(frame);
  if (const JinjaUndefined* undefined = function.undefined()) throw JinjaProblem{undefined->what};
  if (!function.object())
    throw JinjaProblem{"a value is called that is no function", "a macro or function",
                       function.type()};
  frame.meter.enter();
  const auto leave = [](JinjaMeter* meter) { meter->leave(); };
  const std::unique_ptr<JinjaMeter, decltype(leave)> inside(&frame.meter, leave);
  return function.object()->call(call);
}

JinjaValue JinjaFiltered::evaluate(JinjaFrame& frame) const {
  const JinjaValue value = input->value(frame);
  return apply_filter(name, value, arguments.call(frame));
}

JinjaValue JinjaTested::evaluate(JinjaFrame& frame) const {
  const JinjaValue value = input->value(frame);
  return apply_test(name, value, arguments.call(frame));
}

JinjaValue JinjaUnary::evaluate(JinjaFrame& frame) const {
  const JinjaValue value = operand->value(frame);
  if (operation == "not") return !value.truth();
  return operation == "-" ? negative_of(value) : negative_of(negative_of(value));
}

JinjaValue JinjaBinary::evaluate(JinjaFrame& frame) const {
  JinjaValue a = left->value(frame);
  if (operation == "and") return a.truth() ? right->value(frame) : a;
  if (operation == "or") return a.truth() ? a : right->value(frame);
  return operate(operation, a, right->value(frame), frame.meter);
}

JinjaValue JinjaComparison::evaluate(JinjaFrame& frame) const {
  JinjaValue a = first->value(frame);
  for (const auto& [operation, other] : others) {
    JinjaValue b = other->value(frame);
    if (!compares(operation, a, b)) return false;
    a = std::move(b);
  }
  return true;
}

JinjaValue JinjaChoice::evaluate(JinjaFrame& frame) const {
  if (condition->value(frame).truth()) return yes->value(frame);
  if (no) return no->value(frame);
  return JinjaUndefined{"an inline 'if' without 'else' is false"};
}

}  // namespace strata
