/// Builds the parts of JSON texts: strings, numbers, fixed values and values of any kind.
///
/// Between two parts of an object or a list a text may have a space, or one or two line ends with
/// up to 20 blanks after them: after "{", "[", "," and ":", and before "}" and "]". So models write
/// as they are used to, but not white space without end.
///
/// Threads  one. The grammar must outlive this object.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "strata/grammar/grammar.h"

namespace strata {

class JsonExpressions {
 public:
  using Expression = Grammar::Expression;

  explicit JsonExpressions(Grammar& grammar);

  /// A character of the set within a string, in its shortest form.
  Expression character(const CharacterSet& set);
  /// A string of `least` to `most` characters in any form.
  Expression string(std::uint32_t least = 0, std::uint32_t most = Grammar::kUnbounded);
  /// A string that has none of these contents.
  Expression string_except(std::vector<std::string> contents);
  Expression quoted(Expression contents);
  Expression number();
  Expression boolean();
  Expression null() { return grammar_.text("null"); }
  Expression any_value() { return grammar_.call(value_rule()); }
  Expression any_object();
  Expression value(const nlohmann::ordered_json& value);

  /// `{` or `[`, the parts if there are any, and `}` or `]`.
  Expression enclosed(char open, std::optional<Expression> parts, char close);
  Expression member(Expression key, Expression value);
  /// `part` after a comma.
  Expression next(Expression part);

 private:
  Expression other_contents(const std::vector<std::u32string>& contents, std::size_t depth);
  Expression any_array();
  Grammar::Rule value_rule();

  Grammar& grammar_;
  Expression space_;
  std::optional<Expression> free_character_;   // of a string, in any form
  std::optional<Grammar::Rule> value_, rest_;  // any value; the rest of a string's contents
};

}  // namespace strata
