// The parser keeps no places, so the text before the value is scanned again. Texts are small.
#include "strata/base/json_place.h"

#include <algorithm>
#include <cstddef>

namespace strata {
namespace {

constexpr std::size_t kNowhere = std::string_view::npos;

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  // Returns the position of the last value of `key` in the object that begins at `object`.
  std::size_t member(std::size_t object, std::string_view key) {
    at_ = object;
    std::size_t found = kNowhere;
    if (!next_is('{')) return found;
    ++at_;
    while (next_is('"')) {
      const std::size_t begin = at_ + 1;
      pass_string();
      const bool is_it = text_.substr(begin, at_ - 1 - begin) == key;
      if (next_is(':')) ++at_;
      pass_space();
      if (is_it) found = at_;
      pass_value();
      if (next_is(',')) ++at_;
    }
    return found;
  }
  std::size_t begin() {
    pass_space();
    return at_;
  }

 private:
  void pass_space() { at_ = std::min(text_.size(), text_.find_first_not_of(" \t\r\n", at_)); }
  bool next_is(char c) {
    pass_space();
    return at_ < text_.size() && text_[at_] == c;
  }
  void pass_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    at_ = std::min(text_.size(), at_ + 1);
  }
  void pass_value() {
    int depth = 0;
    do {
      if (at_ >= text_.size()) return;
      const char c = text_[at_];
      if (c == '"') {
        pass_string();
      } else {
        depth += (c == '{' || c == '[') - (c == '}' || c == ']');
        ++at_;
      }
    } while (depth > 0 || (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}'));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string json_place(std::string_view text, std::span<const std::string> keys) {
  Scan scan(text);
  std::size_t at = scan.begin();
  for (const std::string& key : keys) {
    at = scan.member(at, key);
    if (at == kNowhere) return "";
  }
  const std::string_view before = text.substr(0, at);
  const std::size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return ":" + std::to_string(1 + std::ranges::count(before, '\n')) + ":" +
         std::to_string(at - line_begin + 1);
}

}  // namespace strata
