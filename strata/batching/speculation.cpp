#include "strata/batching/speculation.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

std::vector<std::int64_t> guess_by_ngrams(std::span<const std::int64_t> tokens, std::int64_t n,
                                          std::int64_t count) {
  STRATA_CHECK(n > 0 && count >= 0, "batching.guess");
  const std::int64_t size = std::ssize(tokens);
  std::vector<std::int64_t> guess;
  if (size <= n) return guess;
  const auto last = tokens.last(n);
  for (std::int64_t end = size - 1; end >= n; --end) {
    if (!std::ranges::equal(tokens.subspan(end - n, n), last)) continue;
    for (std::int64_t i = end; std::ssize(guess) < count; ++i)
      guess.push_back(i < size ? tokens[i] : guess[i - size]);
    break;
  }
  return guess;
}

}  // namespace strata
