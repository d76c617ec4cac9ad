#include "strata/grammar/gbnf.h"

#include <map>
#include <string>
#include <vector>

#include "strata/base/user_text.h"
#include "strata/grammar/pattern_text.h"

namespace strata {
namespace {

constexpr ErrorSource kGbnfErrors{"grammar.gbnf", "correct the grammar"};

using Expression = Grammar::Expression;

bool is_name_character(char32_t c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class GbnfReader {
 public:
  GbnfReader(Grammar& grammar, std::string_view text)
      : grammar_(grammar), text_(text, kGbnfErrors) {}

  Expression read() {
    for (skip(true); !text_.done(); skip(true)) read_rule();
    const auto root = rules_.find("root");
    if (root == rules_.end())
      throw kGbnfErrors.user("", "the grammar has no rule 'root'", "root ::= ...", "none");
    for (const auto& [name, rule] : rules_)
      if (!grammar_.is_defined(rule))
        throw kGbnfErrors.user(quote(name), "the rule is not defined",
                               "a definition " + excerpt(name) + " ::= ...", "none");
    return grammar_.call(root->second);
  }

 private:
  // Skips blanks and comments, with `lines` also line ends.
  void skip(bool lines) {
    while (true) {
      if (text_.sees("#")) {
        while (!text_.done() && !text_.sees("\n") && !text_.sees("\r")) text_.take();
      } else if (!(text_.take(" ") || text_.take("\t") ||
                   (lines && (text_.take("\n") || text_.take("\r"))))) {
        return;
      }
    }
  }

  std::string name() {
    const std::size_t begin = text_.position();
    while (is_name_character(text_.peek())) text_.take();
    if (text_.position() == begin) text_.refuse("a part is missing", "the name of a rule");
    return std::string(text_.since(begin));
  }

  Grammar::Rule rule(const std::string& name) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    return rules_.emplace(name, grammar_.declare(name)).first->second;
  }

  void read_rule() {
    const Grammar::Rule defined = rule(name());
    if (grammar_.is_defined(defined)) text_.refuse("two rules have the same name", "one rule");
    skip(false);
    text_.expect("::=");
    skip(true);
    grammar_.define(defined, alternatives(0));
    if (!text_.done() && !text_.sees("\n") && !text_.sees("\r"))
      text_.refuse("the rule cannot continue like this", "the end of the line");
  }

  Expression alternatives(int depth) {
    std::vector<Expression> parts = {sequence(depth)};
    while (text_.take("|")) {
      skip(true);
      parts.push_back(sequence(depth));
    }
    return grammar_.choice(parts);
  }

  Expression sequence(int depth) {
    std::vector<Expression> parts;
    while (true) {
      if (text_.sees("\"") || text_.sees("[") || text_.sees("(") || text_.sees(".") ||
          text_.sees("<") || text_.sees("!") || is_name_character(text_.peek()))
        parts.push_back(repeated(atom(depth), depth));
      else
        return grammar_.sequence(parts);
    }
  }

  Expression atom(int depth) {
    if (text_.sees("<") || text_.sees("!"))
      text_.refuse("names of tokens are not supported", "their text in quotation marks");
    if (text_.take("\"")) return literal();
    if (text_.take("[")) return grammar_.characters(character_class());
    if (text_.take(".")) return grammar_.characters(CharacterSet::all());
    if (!text_.take("(")) return grammar_.call(rule(name()));
    if (depth == kMostGroups)
      text_.refuse("the grammar nests too deeply", std::to_string(kMostGroups) + " groups");
    skip(true);
    const Expression inner = alternatives(depth + 1);
    text_.expect(")");
    return inner;
  }

  Expression repeated(Expression part, int depth) {
    while (true) {
      skip(depth > 0);
      if (text_.take("*"))
        part = grammar_.repeat(part, 0);
      else if (text_.take("+"))
        part = grammar_.repeat(part, 1);
      else if (text_.take("?"))
        part = grammar_.optional(part);
      else if (text_.take("{"))
        part = bounded(part);
      else
        return part;
    }
  }

  Expression bounded(Expression part) {
    skip(false);
    const std::uint32_t least = text_.number(kMostRepetitions);
    std::uint32_t most = least;
    skip(false);
    if (text_.take(",")) {
      skip(false);
      most = text_.sees("}") ? Grammar::kUnbounded : text_.number(kMostRepetitions);
      skip(false);
    }
    if (most < least) text_.refuse("the minimum exceeds the maximum", "{least,most}");
    text_.expect("}");
    return grammar_.repeat(part, least, most);
  }

  Expression literal() {
    std::vector<Expression> parts;
    while (!text_.take("\"")) {
      if (text_.sees("\n")) text_.refuse("a text does not end", "'\"'");
      const char32_t c = character();
      parts.push_back(grammar_.characters(CharacterSet({{c, c}})));
    }
    return grammar_.sequence(parts);
  }

  CharacterSet character_class() {
    const bool excludes = text_.take("^");
    std::vector<CharacterRange> ranges;
    while (!text_.take("]")) {
      const char32_t first = character();
      char32_t last = first;
      if (text_.sees("-") && !text_.sees("-]")) {
        text_.take("-");
        last = character();
        if (last < first) text_.refuse("a range of a class has no characters", "two in order");
      }
      ranges.push_back({first, last});
    }
    const CharacterSet set(std::move(ranges));
    return excludes ? set.complement() : set;
  }

  char32_t character() {
    if (!text_.take("\\")) return text_.take();
    const std::size_t begin = text_.position();
    switch (const char32_t c = text_.take()) {
      case 'x':
        return text_.hexadecimal(2);
      case 'u':
        return text_.hexadecimal(4);
      case 'U':
        return text_.hexadecimal(8);
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return c;
      default:
        text_.go_back(begin);
        text_.refuse("the escape is not known",
                     "\\n, \\r, \\t, \\\\, \\\", \\[, \\], \\xHH or \\uHHHH");
    }
  }

  Grammar& grammar_;
  PatternText text_;
  std::map<std::string, Grammar::Rule> rules_;
};

}  // namespace

Grammar::Expression read_gbnf(Grammar& grammar, std::string_view text) {
  return GbnfReader(grammar, text).read();
}

}  // namespace strata
