/// Finds the tokens that a tokenizer.json adds to its vocabulary ("<|endoftext|>") in text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

struct AddedToken {
  std::string content;
  std::int64_t id = 0;
  bool takes_left = false;   ///< white space in front belongs to it
  bool takes_right = false;  ///< white space behind belongs to it
};

/// A stretch of text, or one added token.
struct AddedSplit {
  std::string_view text;
  const AddedToken* token = nullptr;
};

class AddedTokens {
 public:
  void add(AddedToken token);

  /// Calls `part` for the parts of the text in order: the leftmost token, and the longest there.
  void split(std::string_view text, const std::function<void(const AddedSplit&)>& part) const;

 private:
  const AddedToken* at_front(std::string_view text) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // longest first
};

}  // namespace strata
