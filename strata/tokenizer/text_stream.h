/// Converts a sequence of tokens to pieces of valid UTF-8.
///
/// A character that spans tokens is held back until it is complete; invalid bytes become U+FFFD.
/// The joined pieces equal the tokenizer's text of all tokens.
///
/// Threads  one.
/// Cost     a token decodes at most a window of previous tokens, however long the text is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "strata/tokenizer/tokenizer.h"

namespace strata {

class TextStream {
 public:
  /// `prompt`: the beginning of the text, which is not repeated. The tokenizer must outlive this
  /// object.
  TextStream(const Tokenizer& tokenizer, std::span<const std::int64_t> prompt);

  /// The text that the token completes; may be empty.
  std::string push(std::int64_t token);

  /// The bytes that the token would add now, which need not be UTF-8.
  std::string bytes_of(std::int64_t token) const;

  /// The bytes that were held back.
  std::string finish();

 private:
  void shorten();

  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> window_;  // the last tokens
  std::size_t window_bytes_ = 0;      // bytes that the window decodes to
  std::string held_;                  // the beginning of a character
};

}  // namespace strata
