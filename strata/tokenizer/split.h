/// Cuts text into the words that merges never leave, as the `pre_tokenizer` of a tokenizer.json
/// says.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "strata/tokenizer/components.h"

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

}  // namespace strata
