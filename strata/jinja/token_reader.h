/// Reads the tokens of a template one by one for the parsers of expressions and statements.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/jinja/lexer.h"

namespace strata {

class JinjaTokenReader {
 public:
  JinjaTokenReader(std::vector<JinjaToken> tokens, std::string name)
      : tokens_(std::move(tokens)), name_(std::move(name)) {}

  const JinjaToken& current() const { return tokens_[at_]; }
  const JinjaToken& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  JinjaPlace place() const { return current().place; }
  bool is(JinjaTokenKind kind) const { return current().kind == kind; }
  bool is(JinjaTokenKind kind, std::string_view text) const {
    return is(kind) && current().text == text;
  }
  bool is_operator(std::string_view text) const { return is(JinjaTokenKind::kOperator, text); }
  bool is_name(std::string_view text) const { return is(JinjaTokenKind::kName, text); }

  JinjaToken next() {
    JinjaToken token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip_operator(std::string_view text) { return is_operator(text) && (next(), true); }
  bool skip_name(std::string_view text) { return is_name(text) && (next(), true); }

  /// UserError: another token is here.
  JinjaToken expect(JinjaTokenKind kind, const std::string& expected) {
    if (!is(kind)) refuse("the template has another part here", expected);
    return next();
  }
  void expect_operator(const std::string& text) {
    if (!skip_operator(text)) refuse("the template has another part here", "'" + text + "'");
  }
  void expect_name(const std::string& text) {
    if (!skip_name(text)) refuse("the template has another part here", "'" + text + "'");
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& expected = "") const {
    refuse_template(name_, place(), what, expected, described(current()));
  }

  /// Counts levels of nesting: a template cannot exhaust the stack.
  class Level {
   public:
    explicit Level(JinjaTokenReader& reader) : reader_(reader) {
      if (++reader_.depth_ > kMaxDepth) {
        --reader_.depth_;
        reader_.refuse("the template nests too deeply",
                       "at most " + std::to_string(kMaxDepth) + " levels");
      }
    }
    ~Level() { --reader_.depth_; }
    Level(const Level&) = delete;

   private:
    static constexpr int kMaxDepth = 200;
    JinjaTokenReader& reader_;
  };

 private:
  static std::string described(const JinjaToken& token);

  std::vector<JinjaToken> tokens_;
  std::string name_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace strata
