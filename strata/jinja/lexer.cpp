#include "strata/jinja/lexer.h"

#include <array>
#include <cctype>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/jinja/python_text.h"

namespace strata {
namespace {

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_name_byte(char byte) {
  return std::isalnum(static_cast<unsigned char>(byte)) || byte == '_' ||
         static_cast<unsigned char>(byte) >= 0x80;
}
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

std::string normalised(std::string_view text) {
  std::string lines;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      lines += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      lines += text[i];
    }
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : text_(normalised(text)), name_(name) {}

  std::vector<JinjaToken> tokens() {
    while (at_ < text_.size()) {
      const std::size_t tag = next_tag();
      if (tag == std::string::npos) {
        add_text(std::string_view(text_).substr(at_));
        at_ = text_.size();
        break;
      }
      read_tag(tag);
    }
    add(JinjaTokenKind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < text_.size(); ++i)
      if (text_[i] == '{' && (text_[i + 1] == '%' || text_[i + 1] == '{' || text_[i + 1] == '#'))
        return i;
    return std::string::npos;
  }

  // The text before a tag, as its sign and lstrip_blocks leave it.
  void read_tag(std::size_t tag) {
    const char kind = text_[tag + 1];
    std::size_t inside = tag + 2;
    const char sign = inside < text_.size() && (text_[inside] == '-' || text_[inside] == '+')
                          ? text_[inside++]
                          : ' ';
    add_text(before_tag(std::string_view(text_).substr(at_, tag - at_), sign, kind != '{'));
    at_ = inside;
    if (kind == '#') return read_comment(tag);
    if (kind == '%' && is_word("raw")) return read_raw(tag);
    add(kind == '%' ? JinjaTokenKind::kBlockBegin : JinjaTokenKind::kPrintBegin, "", tag);
    read_inside(tag, kind == '%' ? '%' : '}');
  }

  std::string_view before_tag(std::string_view before, char sign, bool strips_line) const {
    if (sign == '-') return strip(before, nullptr, false, true);
    if (sign == '+' || !strips_line) return before;
    const std::size_t newline = before.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return before;
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const bool blank = strip(before.substr(line), nullptr, true, true).empty();
    return blank ? before.substr(0, line) : before;
  }

  // Passes the end of a tag at `at_`, which is there: "-%}" drops the white space after it, "%}"
  // one line end.
  void pass_end(std::size_t bytes, bool drops_space, bool drops_newline) {
    at_ += bytes;
    if (drops_space) {
      const std::string_view rest = std::string_view(text_).substr(at_);
      at_ += rest.size() - strip(rest, nullptr, true, false).size();
    } else if (drops_newline && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = text_[at_ - 1] == '\n';
  }

  // Whether a tag ends here: "%}", "-%}" or "+%}".
  bool pass_end_of(char mark, bool drops_newline) {
    const bool sign =
        at_ < text_.size() && (text_[at_] == '-' || (text_[at_] == '+' && mark != '}'));
    const std::size_t end = at_ + (sign ? 1 : 0);
    if (end + 1 >= text_.size() || text_[end] != mark || text_[end + 1] != '}') return false;
    const char first = text_[at_];
    pass_end(end + 2 - at_, first == '-', drops_newline && first != '+');
    return true;
  }

  void read_comment(std::size_t tag) {
    for (; at_ < text_.size(); ++at_)
      if (pass_end_of('#', true)) return;
    refuse(tag, "a comment does not end", "#}");
  }

  bool is_word(std::string_view word) const {
    std::size_t i = at_;
    while (i < text_.size() && is_space(std::string_view(text_).substr(i, 1))) ++i;
    return std::string_view(text_).substr(i).starts_with(word) &&
           (i + word.size() >= text_.size() || !is_name_byte(text_[i + word.size()]));
  }

  // Passes white space, a word and the end of the tag.
  bool pass_word(std::string_view word, bool drops_newline) {
    const std::size_t before = at_;
    pass_space();
    if (std::string_view(text_).substr(at_).starts_with(word)) {
      at_ += word.size();
      pass_space();
      const bool keeps_space = at_ < text_.size() && text_[at_] == '+';
      if (!(keeps_space && word == "raw") && pass_end_of('%', drops_newline)) return true;
    }
    at_ = before;
    return false;
  }

  void read_raw(std::size_t tag) {
    if (!pass_word("raw", false)) refuse(tag, "'raw' has arguments", "{% raw %}");
    const std::size_t begin = at_;
    for (std::size_t i = begin; i + 1 < text_.size(); ++i) {
      if (text_[i] != '{' || text_[i + 1] != '%') continue;
      at_ = i + 2;
      const char sign = text_[at_] == '-' || text_[at_] == '+' ? text_[at_++] : ' ';
      const bool starts_line = line_starting_;
      if (!pass_word("endraw", true)) continue;
      const bool after = std::exchange(line_starting_, starts_line);
      add_text(before_tag(std::string_view(text_).substr(begin, i - begin), sign, true));
      line_starting_ = after;
      return;
    }
    refuse(tag, "'raw' does not end", "{% endraw %}");
  }

  void pass_space() {
    while (at_ < text_.size() && is_space(std::string_view(text_).substr(at_, 4))) ++at_;
  }

  // Names, numbers, texts and operators up to the end of the tag; brackets may hide it.
  void read_inside(std::size_t tag, char mark) {
    int open = 0;
    for (;;) {
      pass_space();
      if (at_ >= text_.size()) refuse(tag, "a tag does not end", mark == '%' ? "%}" : "}}");
      const std::size_t begin = at_;
      if (open == 0 && pass_end_of(mark, mark == '%')) {
        add(mark == '%' ? JinjaTokenKind::kBlockEnd : JinjaTokenKind::kPrintEnd, "", begin);
        return;
      }
      if (is_digit(text_[at_]))
        read_number();
      else if (is_name_byte(text_[at_]))
        read_name();
      else if (text_[at_] == '"' || text_[at_] == '\'')
        read_string();
      else
        open += read_operator();
      if (open < 0) refuse(begin, "a bracket closes that did not open", "", text_.substr(begin, 1));
    }
  }

  void read_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name_byte(text_[at_])) ++at_;
    add(JinjaTokenKind::kName, text_.substr(begin, at_ - begin), begin);
  }

  std::string digits() {
    std::string read;
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '_')) {
      if (text_[at_] != '_') read += text_[at_];
      ++at_;
    }
    return read;
  }

  void read_number() {
    const std::size_t begin = at_;
    std::string number = digits();
    JinjaTokenKind kind = JinjaTokenKind::kInteger;
    const auto digit_at = [&](std::size_t i) { return i < text_.size() && is_digit(text_[i]); };
    if (at_ < text_.size() && text_[at_] == '.' && digit_at(at_ + 1) &&
        (begin == 0 || text_[begin - 1] != '.')) {
      ++at_;
      number += "." + digits();
      kind = JinjaTokenKind::kFloat;
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      const std::size_t sign = at_ + 1;
      const bool has_sign = sign < text_.size() && (text_[sign] == '+' || text_[sign] == '-');
      if (digit_at(sign + (has_sign ? 1 : 0))) {
        number += 'e';
        at_ = sign;
        if (has_sign) number += text_[at_++];
        number += digits();
        kind = JinjaTokenKind::kFloat;
      }
    }
    if (at_ < text_.size() && is_name_byte(text_[at_]))
      refuse(begin, "a number is not decimal", "an int or a float");
    if (kind == JinjaTokenKind::kInteger && number.size() > 1 && number[0] == '0' &&
        number.find_first_not_of('0') != std::string::npos)
      refuse(begin, "an int begins with 0", "an int without leading zeros", number);
    add(kind, number, begin);
  }

  void append_code(std::string& read, std::size_t digits, std::size_t begin) {
    const std::string hex = text_.substr(at_, digits);
    if (hex.size() < digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      refuse(begin, "an escape has too few digits", std::to_string(digits) + " digits");
    const unsigned long code = std::stoul(hex, nullptr, 16);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      refuse(begin, "an escape is no character", "", hex);
    append_character(read, static_cast<char32_t>(code));
    at_ += digits;
  }

  void read_escape(std::string& read, std::size_t begin) {
    constexpr std::string_view kNames = "\n\\'\"abfnrtv", kBytes = "\0\\'\"\a\b\f\n\r\t\v";
    const char name = text_[at_++];
    if (name == '\n') return;  // the text continues on the next line
    if (const std::size_t i = kNames.find(name); i != std::string_view::npos) {
      read += std::string_view(kBytes.data(), kNames.size())[i];
    } else if (name == 'x' || name == 'u' || name == 'U') {
      append_code(read, name == 'x' ? 2 : name == 'u' ? 4 : 8, begin);
    } else if (name >= '0' && name <= '7') {
      std::int32_t code = name - '0';
      for (int i = 0; i < 2 && text_[at_] >= '0' && text_[at_] <= '7'; ++i)
        code = code * 8 + (text_[at_++] - '0');
      append_character(read, static_cast<char32_t>(code));
    } else if (name == 'N') {
      refuse(begin, "an escape names a character", "\\u and its number");
    } else {
      (read += '\\') += name;
    }
  }

  void read_string() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    std::string read;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] != '\\') {
        read += text_[at_++];
      } else if (++at_ < text_.size()) {
        read_escape(read, begin);
      }
    }
    if (at_ >= text_.size()) refuse(begin, "a quotation does not end", std::string(1, quote));
    ++at_;
    add(JinjaTokenKind::kString, read, begin);
  }

  // The change in the number of open brackets.
  int read_operator() {
    const std::string_view rest = std::string_view(text_).substr(at_);
    for (const std::string_view each : kOperators) {
      if (!rest.starts_with(each)) continue;
      add(JinjaTokenKind::kOperator, std::string(each), at_);
      at_ += each.size();
      if (each == "(" || each == "[" || each == "{") return 1;
      return each == ")" || each == "]" || each == "}" ? -1 : 0;
    }
    refuse(at_, "a character has no meaning here", "a name, number, text or operator",
           quote(rest.substr(0, 1)));
  }

  void add(JinjaTokenKind kind, std::string text, std::size_t at) {
    tokens_.push_back({kind, std::move(text), place(at)});
  }
  void add_text(std::string_view text) {
    if (!text.empty()) add(JinjaTokenKind::kText, std::string(text), at_);
  }

  // Places are asked for in ascending order, but for errors.
  JinjaPlace place(std::size_t at) {
    if (at < counted_) counted_ = 0, place_ = {};
    for (; counted_ < at; ++counted_) {
      if (text_[counted_] == '\n')
        place_ = {place_.line + 1, 1};
      else
        ++place_.column;
    }
    return place_;
  }

  [[noreturn]] void refuse(std::size_t at, const std::string& what, const std::string& expected,
                           const std::string& got = "") {
    refuse_template(name_, place(at), what, expected, got);
  }

  std::string text_, name_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // nothing but a line end, or nothing, is before at_
  std::vector<JinjaToken> tokens_;
  std::size_t counted_ = 0;
  JinjaPlace place_;
};

}  // namespace

std::vector<JinjaToken> jinja_tokens(std::string_view text, const std::string& name) {
  return Lexer(text, name).tokens();
}

void refuse_template(const std::string& name, JinjaPlace place, const std::string& what,
                     const std::string& expected, const std::string& got) {
  throw UserError(
      {.operation = "jinja.template",
       .where = name + ":" + std::to_string(place.line) + ":" + std::to_string(place.column),
       .what = what,
       .expected = expected,
       .got = got});
}

}  // namespace strata
