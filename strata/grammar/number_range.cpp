// A range is cut into ranges of numbers of equally many digits, and these at their first digits.
#include "strata/grammar/number_range.h"

#include <algorithm>
#include <string>
#include <vector>

namespace strata {
namespace {

using Expression = Grammar::Expression;

class Digits {
 public:
  explicit Digits(Grammar& grammar) : grammar_(grammar) {}

  // Numbers from `least` on, not negative.
  Expression between(std::uint64_t least, std::optional<std::uint64_t> most) {
    std::vector<Expression> parts;
    std::string low = std::to_string(least);
    const std::string high = most ? std::to_string(*most) : std::string();
    if (most && *most < least) return grammar_.nothing();
    while (!most || low.size() < high.size()) {
      parts.push_back(range(low, std::string(low.size(), '9')));
      if (!most) {
        parts.push_back(
            grammar_.sequence({digit('1', '9'), digits(static_cast<std::uint32_t>(low.size()),
                                                       Grammar::kUnbounded)}));
        return grammar_.choice(parts);
      }
      low = "1" + std::string(low.size(), '0');
    }
    parts.push_back(range(low, high));
    return grammar_.choice(parts);
  }

 private:
  Expression digit(char first, char last) {
    const auto code = [](char c) { return static_cast<char32_t>(c); };
    return grammar_.characters(CharacterSet({{code(first), code(last)}}));
  }
  Expression digits(std::uint32_t least, std::uint32_t most) {
    return grammar_.repeat(digit('0', '9'), least, most);
  }
  Expression digits(std::size_t count) {
    return digits(static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count));
  }

  // Texts of as many digits.
  Expression range(std::string_view low, std::string_view high) {
    if (low.empty()) return grammar_.empty();
    const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
    if (low[0] == high[0])
      return grammar_.sequence({digit(low[0], low[0]), range(low_rest, high_rest)});
    const std::string nines(low_rest.size(), '9'), zeros(low_rest.size(), '0');
    std::vector<Expression> parts;
    char first = low[0], last = high[0];
    if (low_rest != zeros) {
      parts.push_back(grammar_.sequence({digit(first, first), range(low_rest, nines)}));
      ++first;
    }
    if (high_rest != nines) {
      parts.push_back(grammar_.sequence({digit(last, last), range(zeros, high_rest)}));
      --last;
    }
    if (first <= last)
      parts.push_back(grammar_.sequence({digit(first, last), digits(low_rest.size())}));
    return grammar_.choice(parts);
  }

  Grammar& grammar_;
};

// Without overflow for the smallest number.
std::uint64_t magnitude(std::int64_t number) {
  return number < 0 ? ~static_cast<std::uint64_t>(number) + 1 : static_cast<std::uint64_t>(number);
}

}  // namespace

Grammar::Expression whole_numbers(Grammar& grammar, std::optional<std::int64_t> least,
                                  std::optional<std::int64_t> most) {
  Digits digits(grammar);
  std::vector<Expression> parts;
  if (!most || *most >= 0)
    parts.push_back(digits.between(magnitude(std::max<std::int64_t>(least.value_or(0), 0)),
                                   most ? std::optional(magnitude(*most)) : std::nullopt));
  if (!least || *least < 0) {
    const std::uint64_t nearest = most && *most < 0 ? magnitude(*most) : 1;
    const auto farthest = least ? std::optional(magnitude(*least)) : std::nullopt;
    parts.push_back(grammar.sequence({grammar.text("-"), digits.between(nearest, farthest)}));
  }
  return grammar.choice(parts);
}

}  // namespace strata
