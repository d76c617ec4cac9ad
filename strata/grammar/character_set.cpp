#include "strata/grammar/character_set.h"

#include <algorithm>
#include <array>
#include <string>

#include "strata/base/utf8.h"

namespace strata {
namespace {

constexpr char32_t kBeforeSurrogates = 0xD7FF, kAfterSurrogates = 0xE000;

int utf8_size(char32_t character) {
  return character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
}

std::string utf8_of(char32_t character) {
  std::string bytes;
  append_character(bytes, character);
  return bytes;
}

// Where a range must be cut so that its bytes vary independently; 0: nowhere. Both ends have
// encodings of one size.
char32_t cut_of(CharacterRange range, int size) {
  for (int i = 1; i < size; ++i) {
    const char32_t low = (char32_t{1} << (6 * i)) - 1;
    if ((range.first & ~low) == (range.last & ~low)) continue;
    if ((range.first & low) != 0) return (range.first | low) + 1;
    if ((range.last & low) != low) return range.last & ~low;
  }
  return 0;
}

}  // namespace

CharacterSet::CharacterSet(std::vector<CharacterRange> ranges) {
  std::vector<CharacterRange> valid;
  for (const CharacterRange& range : ranges) {
    const CharacterRange below = {range.first, std::min(range.last, kBeforeSurrogates)};
    const CharacterRange above = {std::max(range.first, kAfterSurrogates),
                                  std::min(range.last, kLastCharacter)};
    for (const CharacterRange& part : {below, above})
      if (part.first <= part.last) valid.push_back(part);
  }
  std::ranges::sort(valid, {}, &CharacterRange::first);
  for (const CharacterRange& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1)
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    else
      ranges_.push_back(range);
  }
}

CharacterSet CharacterSet::all() { return CharacterSet({{0, kLastCharacter}}); }

CharacterSet CharacterSet::complement() const {
  std::vector<CharacterRange> gaps;
  char32_t next = 0;
  for (const CharacterRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) gaps.push_back({next, kLastCharacter});
  return CharacterSet(std::move(gaps));
}

CharacterSet CharacterSet::without(const CharacterSet& other) const {
  return complement().united(other).complement();
}

CharacterSet CharacterSet::united(const CharacterSet& other) const {
  std::vector<CharacterRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterSet(std::move(both));
}

bool CharacterSet::contains(char32_t character) const {
  const auto after = std::ranges::upper_bound(ranges_, character, {}, &CharacterRange::first);
  return after != ranges_.begin() && std::prev(after)->last >= character;
}

void for_each_utf8_range(CharacterRange range, const std::function<void(ByteRanges)>& emit) {
  std::vector<CharacterRange> todo = {range};
  while (!todo.empty()) {
    const CharacterRange part = todo.back();
    todo.pop_back();
    const int size = utf8_size(part.first);
    constexpr char32_t kEnds[] = {0, 0x80, 0x800, 0x10000, kLastCharacter + 1};
    const char32_t cut = part.last >= kEnds[size] ? kEnds[size] : cut_of(part, size);
    if (cut != 0) {
      todo.push_back({cut, part.last});
      todo.push_back({part.first, cut - 1});
      continue;
    }
    const std::string first = utf8_of(part.first), last = utf8_of(part.last);
    std::array<std::pair<unsigned char, unsigned char>, 4> bytes;
    for (int i = 0; i < size; ++i)
      bytes[i] = {static_cast<unsigned char>(first[i]), static_cast<unsigned char>(last[i])};
    emit(std::span(bytes).first(static_cast<std::size_t>(size)));
  }
}

}  // namespace strata
