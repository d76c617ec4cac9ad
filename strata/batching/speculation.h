/// Guesses the next tokens of a sequence from its own text.
///
/// Source   Saxena 2023 (prompt lookup decoding).
/// Threads  any.
/// Cost     one comparison a token of the text, n where they agree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// Finds the latest earlier place of the last `n` tokens and returns the `count` tokens that follow
/// it; a place that overlaps the end continues with its period. Empty if there is none.
std::vector<std::int64_t> guess_by_ngrams(std::span<const std::int64_t> tokens, std::int64_t n,
                                          std::int64_t count);

}  // namespace strata
