/// States how the ranks of the axis `cp` divide the tokens of a sample, and which tokens a rank
/// has.
///
/// The sequence is cut into two chunks per rank, and rank r of n has chunks r and 2n - 1 - r: a
/// token attends to all earlier ones, so the late chunk of a rank makes up for its early one, and
/// all ranks do the same work.
///
/// Source  Grattafiori et al. 2024 (Llama 3), section 3.3.2.
/// Units   tokens.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

/// How the ranks exchange what attention needs of other tokens.
enum class ContextExchange : std::uint8_t {
  kRing,     ///< keys and values go from rank to rank
  kUlysses,  ///< the ranks exchange tokens for heads, and each attends with some heads
};
const char* name_of(ContextExchange exchange);  ///< "ring", "ulysses"

struct ContextSplit {
  int ranks = 1;
  ContextExchange exchange = ContextExchange::kRing;
  /// Tokens that ring attention multiplies at once: runs with equal blocks have equal bits for any
  /// number of ranks. 0: a chunk; on one rank attention is not cut.
  std::int64_t block = 0;

  /// Whether attention is made of blocks.
  bool in_blocks() const { return exchange == ContextExchange::kRing && (ranks > 1 || block > 0); }
  /// Whether attention differs from that of a rank with whole samples.
  bool divides() const { return ranks > 1 || in_blocks(); }
  /// Samples must have a multiple of so many tokens, if `parts` tensor-parallel ranks divide a
  /// rank's tokens between split regions.
  std::int64_t unit(std::int64_t parts) const;
  int chunks() const { return 2 * ranks; }
  int owner(int chunk) const { return chunk < ranks ? chunk : 2 * ranks - 1 - chunk; }
  int early_chunk(int rank) const { return rank; }
  int late_chunk(int rank) const { return 2 * ranks - 1 - rank; }
  friend bool operator==(const ContextSplit&, const ContextSplit&) = default;
};

struct TokenRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

/// The tokens of rank `rank` in the order in which it keeps them, for samples of `length` tokens of
/// which each rank has length / split.ranks. With one rank the second range is empty.
///
/// `part` of `parts`: a tensor-parallel rank's share of them between split regions. Chunks are
/// divided evenly by `parts`.
std::array<TokenRange, 2> own_tokens(const ContextSplit& split, int rank, std::int64_t length,
                                     int part = 0, int parts = 1);

}  // namespace strata
