// Tokenizers join the bytes of tokens, but strip the front of a text. So the bytes of a token are
// what it adds after a window of previous tokens. The window is shortened only if it keeps bytes of
// its own, so that stripping does not reach the new token.
#include "strata/tokenizer/text_stream.h"

#include "strata/base/utf8.h"

namespace strata {
namespace {

constexpr std::size_t kWindow = 16;                   // tokens
constexpr const char* kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Whether more bytes may complete it to a character.
bool is_beginning(std::string_view text) {
  if (text.size() >= announced_bytes(static_cast<unsigned char>(text[0]))) return false;
  for (const char byte : text.substr(1))
    if (static_cast<unsigned char>(byte) >> 6 != 0b10) return false;
  return true;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::int64_t> prompt)
    : tokenizer_(tokenizer),
      window_(prompt.begin(), prompt.end()),
      window_bytes_(tokenizer.decode(window_).size()) {
  shorten();
}

void TextStream::shorten() {
  if (window_.size() < 2 * kWindow) return;
  const std::span<const std::int64_t> last = std::span(window_).last(kWindow);
  if (const std::size_t bytes = tokenizer_.decode(last).size(); bytes > 0) {
    window_bytes_ = bytes;
    window_.erase(window_.begin(), window_.end() - kWindow);
  }
}

std::string TextStream::bytes_of(std::int64_t token) const {
  std::vector<std::int64_t> window = window_;
  window.push_back(token);
  return tokenizer_.decode(window).substr(window_bytes_);
}

std::string TextStream::push(std::int64_t token) {
  shorten();
  window_.push_back(token);
  const std::string decoded = tokenizer_.decode(window_);
  held_ += decoded.substr(window_bytes_);
  window_bytes_ = decoded.size();

  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    std::size_t bytes = character_bytes(rest);
    if (bytes == 0 && is_beginning(rest)) break;
    text += bytes > 0 ? rest.substr(0, bytes) : kReplacement;
    rest.remove_prefix(bytes > 0 ? bytes : 1);
  }
  held_ = std::string(rest);
  return text;
}

std::string TextStream::finish() {
  const std::string text = held_.empty() ? "" : kReplacement;
  held_.clear();
  return text;
}

}  // namespace strata
