/// Nodes of expressions: what stands in {{ ... }}, in conditions and in arguments.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/jinja/scope.h"

namespace strata {

struct JinjaExpression {
  JinjaPlace place;

  explicit JinjaExpression(JinjaPlace where) : place(where) {}
  virtual ~JinjaExpression() = default;

  JinjaValue value(JinjaFrame& frame) const {
    return at_place(frame, place, [&] {
      frame.meter.step();
      return evaluate(frame);
    });
  }

 protected:
  virtual JinjaValue evaluate(JinjaFrame& frame) const = 0;
};
using JinjaExpressionPtr = std::unique_ptr<const JinjaExpression>;

struct JinjaArguments {
  std::vector<JinjaExpressionPtr> arguments;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> named;

  JinjaCall call(JinjaFrame& frame) const;
};

struct JinjaConstant : JinjaExpression {
  JinjaValue constant;
  JinjaConstant(JinjaPlace where, JinjaValue value)
      : JinjaExpression(where), constant(std::move(value)) {}
  JinjaValue evaluate(JinjaFrame&) const override { return constant; }
};

struct JinjaName : JinjaExpression {
  std::string name;
  JinjaName(JinjaPlace where, std::string text) : JinjaExpression(where), name(std::move(text)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// [a, b] or (a, b)
struct JinjaItems : JinjaExpression {
  JinjaSequenceKind kind;
  std::vector<JinjaExpressionPtr> items;
  JinjaItems(JinjaPlace where, JinjaSequenceKind which, std::vector<JinjaExpressionPtr> all)
      : JinjaExpression(where), kind(which), items(std::move(all)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

struct JinjaDictItems : JinjaExpression {
  std::vector<std::pair<JinjaExpressionPtr, JinjaExpressionPtr>> items;
  using JinjaExpression::JinjaExpression;
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// object.name
struct JinjaAttribute : JinjaExpression {
  JinjaExpressionPtr object;
  std::string name;
  JinjaAttribute(JinjaPlace where, JinjaExpressionPtr of, std::string text)
      : JinjaExpression(where), object(std::move(of)), name(std::move(text)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// object[key]
struct JinjaItem : JinjaExpression {
  JinjaExpressionPtr object, key;
  JinjaItem(JinjaPlace where, JinjaExpressionPtr of, JinjaExpressionPtr at)
      : JinjaExpression(where), object(std::move(of)), key(std::move(at)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// object[start:stop:step]; any of the three may be null
struct JinjaSlice : JinjaExpression {
  JinjaExpressionPtr object, start, stop, step;
  JinjaSlice(JinjaPlace where, JinjaExpressionPtr of)
      : JinjaExpression(where), object(std::move(of)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

struct JinjaCallOf : JinjaExpression {
  JinjaExpressionPtr callee;
  JinjaArguments arguments;
  JinjaCallOf(JinjaPlace where, JinjaExpressionPtr of, JinjaArguments with)
      : JinjaExpression(where), callee(std::move(of)), arguments(std::move(with)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// input | name(arguments)
struct JinjaFiltered : JinjaExpression {
  JinjaExpressionPtr input;
  std::string name;
  JinjaArguments arguments;
  JinjaFiltered(JinjaPlace where, JinjaExpressionPtr of, std::string filter, JinjaArguments with)
      : JinjaExpression(where),
        input(std::move(of)),
        name(std::move(filter)),
        arguments(std::move(with)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// input is name(arguments)
struct JinjaTested : JinjaExpression {
  JinjaExpressionPtr input;
  std::string name;
  JinjaArguments arguments;
  JinjaTested(JinjaPlace where, JinjaExpressionPtr of, std::string test, JinjaArguments with)
      : JinjaExpression(where),
        input(std::move(of)),
        name(std::move(test)),
        arguments(std::move(with)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// not x, -x, +x
struct JinjaUnary : JinjaExpression {
  std::string operation;
  JinjaExpressionPtr operand;
  JinjaUnary(JinjaPlace where, std::string text, JinjaExpressionPtr of)
      : JinjaExpression(where), operation(std::move(text)), operand(std::move(of)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// Arithmetic, ~, "and", "or".
struct JinjaBinary : JinjaExpression {
  std::string operation;
  JinjaExpressionPtr left, right;
  JinjaBinary(JinjaPlace where, std::string text, JinjaExpressionPtr a, JinjaExpressionPtr b)
      : JinjaExpression(where),
        operation(std::move(text)),
        left(std::move(a)),
        right(std::move(b)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// a < b <= c: true if every neighbour compares so
struct JinjaComparison : JinjaExpression {
  JinjaExpressionPtr first;
  std::vector<std::pair<std::string, JinjaExpressionPtr>> others;
  JinjaComparison(JinjaPlace where, JinjaExpressionPtr of)
      : JinjaExpression(where), first(std::move(of)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

/// yes if condition else no; without `no`, what is undefined
struct JinjaChoice : JinjaExpression {
  JinjaExpressionPtr condition, yes, no;
  JinjaChoice(JinjaPlace where, JinjaExpressionPtr test, JinjaExpressionPtr a, JinjaExpressionPtr b)
      : JinjaExpression(where), condition(std::move(test)), yes(std::move(a)), no(std::move(b)) {}
  JinjaValue evaluate(JinjaFrame& frame) const override;
};

}  // namespace strata
