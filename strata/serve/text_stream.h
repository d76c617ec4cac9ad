/// Turns tokens that come one after another into pieces of valid UTF-8.
///
/// A character that tokens share is held back until it is whole; bytes that can become none are
/// shown as U+FFFD. The pieces joined are what the tokenizer makes of all tokens at once.
///
/// Threads  one.
/// Cost     a token decodes at most a window of tokens before it, however long the text is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/tokenizer/tokenizer.h"

namespace strata {

class TextStream {
 public:
  /// `prompt`: what the text begins with; it is not repeated. The tokenizer must outlive this.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int64_t> prompt);

  /// The text that the token completes; may be empty.
  std::string push(std::int64_t token);

  /// What was held back.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> window_;  // the last tokens
  std::size_t window_bytes_ = 0;      // that they decode to
  std::string held_;                  // the beginning of a character
};

}  // namespace strata
