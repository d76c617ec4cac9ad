/// Cuts a text that comes in pieces before the first of several stop strings.
///
/// If several stop strings match, the one that ends first counts; if two end at the same byte, the
/// longer one. The result does not depend on where the pieces are cut. If text and stop strings are
/// UTF-8, what is shown is, too.
///
/// Threads  one.
/// Cost     O(1) amortised a byte and stop string (Knuth, Morris, Pratt 1977).
/// Errors   UserError: an empty stop string.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& stops);

  /// Returns the text that may be shown now. Bytes that may begin a stop string are held back;
  /// after a stop string was met, the result is always empty.
  std::string push(std::string_view piece);

  /// Returns the bytes that were held back, at the end of the text; none if a stop string was met.
  std::string finish();

  std::optional<std::size_t> met() const { return met_; }  ///< index of the stop string

 private:
  struct Pattern {
    std::string text;
    std::vector<std::size_t> shorter;  // by matched bytes: the next shorter match
    std::size_t matched = 0;           // bytes at the end of the text that begin the stop string

    // The match after one more byte.
    std::size_t next(std::size_t bytes, char byte) const;
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<std::size_t> met_;
};

}  // namespace strata
