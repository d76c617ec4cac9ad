/// Parses expressions by Jinja's order of precedence.
#pragma once

#include <string>
#include <vector>

#include "strata/jinja/expressions.h"
#include "strata/jinja/token_reader.h"

namespace strata {

class JinjaExpressionParser {
 public:
  explicit JinjaExpressionParser(JinjaTokenReader& reader) : reader_(reader) {}

  /// `choice`: may be `a if b else c`.
  JinjaExpressionPtr expression(bool choice = true);

  /// One expression, or several with commas between them, which are a tuple.
  JinjaExpressionPtr expression_or_tuple(bool choice = true);

  /// The name of a filter and its arguments, after the "|".
  std::pair<std::string, JinjaArguments> filter();

  /// What stands in the brackets of a call, both brackets included.
  JinjaArguments arguments();

  /// An expression that is a call, in its parts.
  std::pair<JinjaExpressionPtr, JinjaArguments> call();

 private:
  using Level = JinjaTokenReader::Level;
  JinjaExpressionPtr choice_of(JinjaExpressionPtr yes, JinjaPlace place);
  JinjaExpressionPtr disjunction();
  JinjaExpressionPtr conjunction();
  JinjaExpressionPtr negation();
  JinjaExpressionPtr comparison();
  JinjaExpressionPtr sum();
  JinjaExpressionPtr join();
  JinjaExpressionPtr product();
  JinjaExpressionPtr power();
  JinjaExpressionPtr unary(bool with_filters);
  JinjaExpressionPtr primary();
  JinjaExpressionPtr parentheses();
  JinjaExpressionPtr list();
  JinjaExpressionPtr dict();
  JinjaExpressionPtr postfix(JinjaExpressionPtr made);
  JinjaExpressionPtr dotted(JinjaExpressionPtr made);
  JinjaExpressionPtr subscript(JinjaExpressionPtr made);
  JinjaExpressionPtr filters_and_tests(JinjaExpressionPtr made);
  JinjaExpressionPtr test(JinjaExpressionPtr made);
  JinjaArguments test_arguments();
  std::string dotted_name();
  bool ends_tuple() const;

  JinjaTokenReader& reader_;
};

}  // namespace strata
