/// Splits text into words, which merges never cross, in three steps of a tokenizer.json:
/// `added_tokens` are found in the original text, `normalizer` rewrites the text between them, and
/// `pre_tokenizer` splits it into words.
///
/// Threads  const, any thread.
/// Errors   UserError with file and place: an unsupported step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/tokenizer/pattern.h"

namespace strata {

struct Word {
  std::string_view text;
  bool first = false;  ///< begins the whole text
};

using WordSink = std::function<void(const Word&)>;

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const JsonPart& pre_tokenizer);

  bool byte_level() const { return byte_level_; }  ///< the vocabulary spells bytes as characters

  /// Calls `sink` for each word in order; none is empty.
  void split(const Word& text, const WordSink& sink) const { run(0, text, sink); }

 private:
  using Step = std::function<void(const Word&, const WordSink&)>;
  void run(std::size_t step, const Word& text, const WordSink& sink) const;

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

using TextStep = std::function<std::string(std::string_view)>;

/// The rewriting steps in order; none: text stays as it is.
std::vector<TextStep> read_normalizer(const JsonPart& normalizer);

/// A token that the file adds to its vocabulary: "<|endoftext|>".
struct AddedToken {
  std::string content;
  std::int64_t id = 0;
  bool takes_left = false;   ///< includes the white space before it
  bool takes_right = false;  ///< includes the white space after it
};

/// A stretch of text, or one added token.
struct AddedSplit {
  std::string_view text;
  const AddedToken* token = nullptr;
};

class AddedTokens {
 public:
  void add(AddedToken token);

  /// Calls `part` for the parts of the text in order: the leftmost token, and the longest at that
  /// position.
  void split(std::string_view text, const std::function<void(const AddedSplit&)>& part) const;

 private:
  const AddedToken* at_front(std::string_view text) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
};

}  // namespace strata
