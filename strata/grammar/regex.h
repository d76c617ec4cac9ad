/// Reads regular expressions as Python, JavaScript and RE2 write them.
///
/// Reads characters, ".", classes, \d \w \s and their opposites (of ASCII), \n \r \t \f \v \0 \xHH
/// \uHHHH \UHHHHHHHH, groups, alternatives, the quantifiers * + ? {m} {m,} {m,n}, also lazy ones,
/// which match the same texts, and "^" and "$" at the ends of the pattern or of its alternatives.
/// "\S" and "[^\s]" match no white space of Unicode, so that a text matches in every dialect.
///
/// Errors   UserError that names place and construct: not well formed, or not supported:
///          look-around, back-references, flags, word boundaries, classes of Unicode (\p),
///          possessive quantifiers, anchors within the pattern.
#pragma once

#include <functional>
#include <string_view>

#include "strata/grammar/grammar.h"

namespace strata {

struct RegexUse {
  /// How a character of the set is written in the text; null: as it is.
  std::function<Grammar::Expression(const CharacterSet&)> write = {};
  /// Whether the pattern matches the whole text. Otherwise other text may precede the match, unless
  /// the pattern begins with "^", and follow it, unless it ends with "$".
  bool whole = true;
  /// Which line ends "." does not match: \n, \r, U+2028 and U+2029, as in ECMA-262. Otherwise \n.
  bool all_line_ends = false;
};

Grammar::Expression read_regex(Grammar& grammar, std::string_view pattern,
                               const RegexUse& use = {});

}  // namespace strata
