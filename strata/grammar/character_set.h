/// Holds a set of Unicode characters as ranges, and splits ranges into ranges of UTF-8 bytes.
#pragma once

#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace strata {

struct CharacterRange {
  char32_t first = 0;
  char32_t last = 0;
  bool operator==(const CharacterRange&) const = default;
};

class CharacterSet {
 public:
  CharacterSet() = default;
  /// The ranges may overlap and be in any order. Surrogates are left out: UTF-8 has none.
  explicit CharacterSet(std::vector<CharacterRange> ranges);

  static CharacterSet all();

  CharacterSet complement() const;
  CharacterSet without(const CharacterSet& other) const;
  CharacterSet united(const CharacterSet& other) const;
  bool contains(char32_t character) const;

  /// Ascending, with a gap between neighbours.
  const std::vector<CharacterRange>& ranges() const { return ranges_; }

 private:
  std::vector<CharacterRange> ranges_;
};

inline constexpr char32_t kLastCharacter = 0x10FFFF;

/// First and last value of each byte of the characters of a range.
using ByteRanges = std::span<const std::pair<unsigned char, unsigned char>>;

/// Calls `emit` for sequences of byte ranges that together are the characters of the range.
void for_each_utf8_range(CharacterRange range, const std::function<void(ByteRanges)>& emit);

}  // namespace strata
