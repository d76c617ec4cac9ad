#include "strata/grammar/regex.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "strata/base/utf8.h"
#include "strata/grammar/pattern_text.h"

namespace strata {
namespace {

constexpr ErrorSource kRegexErrors{"grammar.regex", "write the pattern without it"};

using Expression = Grammar::Expression;

CharacterSet digits() { return CharacterSet({{'0', '9'}}); }
CharacterSet word_characters() {
  return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
}
CharacterSet white_space() { return CharacterSet({{'\t', '\r'}, {' ', ' '}}); }
// What "\s" matches in any dialect, so that "\S" matches none of it.
CharacterSet all_white_space() {
  constexpr char32_t kByteOrderMark = 0xFEFF, kLast = 0x3000;
  std::vector<CharacterRange> ranges = {{kByteOrderMark, kByteOrderMark}, {0x1C, 0x1F}};
  for (char32_t c = 0; c <= kLast; ++c)
    if (is_white_space(c)) ranges.push_back({c, c});
  return CharacterSet(std::move(ranges));
}
CharacterSet one(char32_t character) { return CharacterSet({{character, character}}); }

class RegexReader {
 public:
  RegexReader(Grammar& grammar, std::string_view pattern, const RegexUse& use)
      : grammar_(grammar), text_(pattern, kRegexErrors), use_(use) {}

  Expression read() {
    std::vector<Expression> alternatives;
    do {
      const bool begins = text_.take("^");
      std::vector<Expression> parts;
      if (!begins && !use_.whole) parts.push_back(anything());
      parts.push_back(sequence(0));
      const bool ends = text_.take("$");
      if (!ends && !use_.whole) parts.push_back(anything());
      alternatives.push_back(grammar_.sequence(parts));
    } while (text_.take("|"));
    if (!text_.done()) refuse_rest();
    return grammar_.choice(alternatives);
  }

 private:
  [[noreturn]] void refuse_rest() const {
    if (text_.sees(")")) text_.refuse("the pattern closes a group that it does not open", "no ')'");
    text_.refuse("anchors within a pattern are not supported", "'^' and '$' at its ends");
  }

  Expression written(const CharacterSet& set) {
    return use_.write ? use_.write(set) : grammar_.characters(set);
  }

  CharacterSet line_ends() const {
    return use_.all_line_ends ? CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})
                              : one('\n');
  }

  Expression anything() { return grammar_.repeat(written(CharacterSet::all()), 0); }

  Expression alternatives(int depth) {
    std::vector<Expression> parts;
    do parts.push_back(sequence(depth));
    while (text_.take("|"));
    return grammar_.choice(parts);
  }

  Expression sequence(int depth) {
    std::vector<Expression> parts;
    while (!text_.done() && !text_.sees("|") && !text_.sees(")") && !text_.sees("$"))
      parts.push_back(quantified(atom(depth)));
    return grammar_.sequence(parts);
  }

  Expression atom(int depth) {
    if (text_.sees("^")) refuse_rest();
    if (text_.take("(")) return group(depth + 1);
    if (text_.take("[")) return written(character_class());
    if (text_.take(".")) return written(line_ends().complement());
    if (text_.take("\\")) return written(escape(false, false));
    for (const char* sign : {"*", "+", "?"})
      if (text_.sees(sign)) text_.refuse("a quantifier has nothing to repeat", "a character");
    if (sees_bounds()) text_.refuse("a quantifier has nothing to repeat", "a character");
    return written(one(text_.take()));
  }

  Expression group(int depth) {
    if (depth > kMostGroups)
      text_.refuse("the pattern nests too deeply", std::to_string(kMostGroups) + " groups");
    if (text_.take("?") && !text_.take(":")) group_name();
    const Expression inner = alternatives(depth);
    if (text_.sees("$")) refuse_rest();
    text_.expect(")");
    return inner;
  }

  void group_name() {
    for (const char* look : {"=", "!", "<=", "<!"})
      if (text_.sees(look)) text_.refuse("look-around is not supported", "a group");
    if (text_.sees(">")) text_.refuse("atomic groups are not supported", "a group");
    if (text_.sees("P=") || text_.sees("P>") || text_.sees("&"))
      text_.refuse("references to groups are not supported", "a group");
    text_.take("P");
    if (!text_.take("<")) text_.refuse("flags are not supported", "a group");
    while (!text_.take(">")) text_.take();
  }

  // Whether "{" begins bounds; otherwise it is a character.
  bool sees_bounds() {
    const std::size_t begin = text_.position();
    bool bounds = text_.take("{") && (text_.sees_digit() || text_.sees(","));
    while (bounds && text_.sees_digit()) text_.take();
    if (bounds && text_.take(","))
      while (text_.sees_digit()) text_.take();
    bounds = bounds && text_.sees("}");
    text_.go_back(begin);
    return bounds;
  }

  Expression quantified(Expression part) {
    std::uint32_t least = 0, most = Grammar::kUnbounded;
    if (text_.take("*")) {
    } else if (text_.take("+")) {
      least = 1;
    } else if (text_.take("?")) {
      most = 1;
    } else if (sees_bounds()) {
      text_.expect("{");
      least = text_.number(kMostRepetitions);  // refuses "{,n}", which dialects read differently
      if (!text_.take(","))
        most = least;
      else if (!text_.sees("}"))
        most = text_.number(kMostRepetitions);
      if (most < least) text_.refuse("the minimum exceeds the maximum", "{least,most}");
      text_.expect("}");
    } else {
      return part;
    }
    text_.take("?");  // lazy
    if (text_.sees("+")) text_.refuse("possessive quantifiers are not supported", "'*', '+', '?'");
    if (text_.sees("*") || text_.sees("?") || sees_bounds())
      text_.refuse("two quantifiers follow each other", "a group around the first");
    return grammar_.repeat(part, least, most);
  }

  CharacterSet character_class() {
    const bool excludes = text_.take("^");
    if (text_.sees("]")) text_.refuse("the class is empty", "a character, or '\\]'");
    std::vector<CharacterRange> ranges;
    while (!text_.take("]")) {
      if (text_.sees("[:")) text_.refuse("named classes are not supported", "a range such as a-z");
      const CharacterSet first = class_part(excludes);
      const bool is_range = text_.sees("-") && !text_.sees("-]");
      if (!is_range) {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      text_.take("-");
      const CharacterSet last = class_part(excludes);
      if (!is_one(first) || !is_one(last) ||
          first.ranges().front().first > last.ranges().front().first)
        text_.refuse("a range of a class has no characters", "two characters in order");
      ranges.push_back({first.ranges().front().first, last.ranges().front().first});
    }
    const CharacterSet set(std::move(ranges));
    return excludes ? set.complement() : set;
  }

  static bool is_one(const CharacterSet& set) {
    return set.ranges().size() == 1 && set.ranges().front().first == set.ranges().front().last;
  }

  CharacterSet class_part(bool excluded) {
    return text_.take("\\") ? escape(true, excluded) : one(text_.take());
  }

  // After the backslash. `excluded`: the characters must not match.
  CharacterSet escape(bool in_class, bool excluded) {
    const std::size_t begin = text_.position();
    const char32_t c = text_.take();
    static const std::map<char32_t, char32_t> kControls = {{'n', '\n'}, {'r', '\r'}, {'t', '\t'},
                                                           {'f', '\f'}, {'v', '\v'}, {'0', '\0'}};
    if (const auto found = kControls.find(c); found != kControls.end()) return one(found->second);
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().complement();
      case 's':
        return excluded ? all_white_space() : white_space();
      case 'S':
        return (excluded ? white_space() : all_white_space()).complement();
      case 'x':
        return one(text_.hexadecimal(2));
      case 'u':
        return one(text_.hexadecimal(4));
      case 'U':
        return one(text_.hexadecimal(8));
      default:
        break;
    }
    if (c == 'b' && in_class) return one('\b');
    if (!word_characters().contains(c) || c == '_') return one(c);
    text_.go_back(begin);
    text_.refuse(refused_escape(c), "an escaped sign, \\d, \\w, \\s, \\n, \\xHH or \\uHHHH");
  }

  static const char* refused_escape(char32_t c) {
    if (c >= '1' && c <= '9') return "back-references are not supported";
    switch (c) {
      case 'k':
        return "back-references are not supported";
      case 'b':
      case 'B':
        return "word boundaries are not supported";
      case 'A':
      case 'Z':
      case 'z':
        return "anchors within a pattern are not supported";
      case 'p':
      case 'P':
        return "classes of Unicode are not supported";
      default:
        return "the escape is not known";
    }
  }

  Grammar& grammar_;
  PatternText text_;
  const RegexUse& use_;
};

}  // namespace

Grammar::Expression read_regex(Grammar& grammar, std::string_view pattern, const RegexUse& use) {
  return RegexReader(grammar, pattern, use).read();
}

}  // namespace strata
