/// Nodes of statements: text, {{ ... }} and the tags {% ... %}.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/jinja/expressions.h"

namespace strata {

/// How a statement ends: the next one follows, or a loop is left or continued.
enum class JinjaFlow : std::uint8_t { kNext, kBreak, kContinue };

struct JinjaStatement {
  JinjaPlace place;

  explicit JinjaStatement(JinjaPlace where) : place(where) {}
  virtual ~JinjaStatement() = default;

  /// Appends what the statement writes to `output`.
  JinjaFlow run(JinjaFrame& frame, std::string& output) const {
    return at_place(frame, place, [&] {
      frame.meter.step();
      const JinjaFlow flow = perform(frame, output);
      if (output.size() > JinjaMeter::kMaxTextBytes)
        frame.meter.text(static_cast<std::int64_t>(output.size()));
      return flow;
    });
  }

 protected:
  virtual JinjaFlow perform(JinjaFrame& frame, std::string& output) const = 0;
};

struct JinjaBody {
  std::vector<std::unique_ptr<const JinjaStatement>> statements;

  JinjaFlow run(JinjaFrame& frame, std::string& output) const;
  std::string text(JinjaFrame frame) const;  ///< what the body writes in a scope of its own
};

struct JinjaTextOutput : JinjaStatement {
  std::string text;
  JinjaTextOutput(JinjaPlace where, std::string what)
      : JinjaStatement(where), text(std::move(what)) {}
  JinjaFlow perform(JinjaFrame&, std::string& output) const override;
};

struct JinjaPrint : JinjaStatement {
  JinjaExpressionPtr expression;
  JinjaPrint(JinjaPlace where, JinjaExpressionPtr what)
      : JinjaStatement(where), expression(std::move(what)) {}
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

/// The names that a value is assigned to: one, several for the items of a list, or an attribute.
struct JinjaTarget {
  std::string name;
  std::string attribute;           // of the namespace `name`; empty: the name itself
  std::vector<JinjaTarget> items;  // not empty: the value is unpacked

  /// Problem: another number of items; an attribute of what is no namespace.
  void assign(const JinjaValue& value, JinjaFrame& frame) const;
};

struct JinjaIf : JinjaStatement {
  std::vector<std::pair<JinjaExpressionPtr, JinjaBody>> cases;  // a null condition: else
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

struct JinjaFor : JinjaStatement {
  JinjaTarget target;
  JinjaExpressionPtr items;
  JinjaExpressionPtr condition;  // null: every item
  JinjaBody body;
  JinjaBody otherwise;  // runs if no round ran to its end
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

struct JinjaSet : JinjaStatement {
  JinjaTarget target;
  JinjaExpressionPtr value;
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

/// A filter of the text that a body writes.
struct JinjaBodyFilter {
  std::string name;
  JinjaArguments arguments;
};

/// {% set name | filters %} text {% endset %}; without a target {% filter %} text {% endfilter %}
struct JinjaFilteredBody : JinjaStatement {
  JinjaTarget target;  // without a name: the text is written
  std::vector<JinjaBodyFilter> filters;
  JinjaBody body;
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

struct JinjaWith : JinjaStatement {
  std::vector<std::pair<JinjaTarget, JinjaExpressionPtr>> values;
  JinjaBody body;
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

/// What a macro or a call block receives and writes.
struct JinjaSignature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<JinjaExpressionPtr> defaults;  // of the last parameters
  JinjaBody body;
};

struct JinjaMacro : JinjaStatement {
  JinjaSignature signature;
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

/// {% call(parameters) macro(arguments) %} body {% endcall %}: the macro sees the body as caller()
struct JinjaCallBlock : JinjaStatement {
  JinjaSignature signature;
  JinjaExpressionPtr callee;
  JinjaArguments arguments;
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

/// {% generation %}: the text of the assistant, in a scope of its own.
struct JinjaGeneration : JinjaStatement {
  JinjaBody body;
  using JinjaStatement::JinjaStatement;
  JinjaFlow perform(JinjaFrame& frame, std::string& output) const override;
};

struct JinjaLeave : JinjaStatement {
  JinjaFlow flow;
  JinjaLeave(JinjaPlace where, JinjaFlow how) : JinjaStatement(where), flow(how) {}
  JinjaFlow perform(JinjaFrame&, std::string&) const override { return flow; }
};

}  // namespace strata
