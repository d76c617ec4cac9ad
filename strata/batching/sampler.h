/// Chooses tokens from logits, and computes their log-probabilities.
///
/// A draw depends on the logits, the sequence's history and (seed, number of the token), so a
/// request gets the same tokens in any batch and on any mesh.
///
/// Source   Holtzman et al. 2020 (top_p), Nguyen et al. 2024 (min_p), Keskar et al. 2019
///          (repetition penalty), Salmon et al. 2011 (Philox).
/// Shapes   logits [V] fp32. -infinity excludes a token.
/// Errors   UserError: fields out of range, logits that are NaN or +infinity, no token left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/batching/token_service.h"

namespace strata {

/// Refuses fields out of range, and biases of tokens that the vocabulary lacks.
void check_sampling(const Sampling& sampling, std::int64_t vocabulary);

/// Where a token is chosen.
struct ChoiceContext {
  std::span<const std::int64_t> prompt = {};     ///< read for repetition_penalty only
  std::span<const std::int64_t> answer = {};     ///< before the token; its size keys the draw
  std::span<const std::uint64_t> allowed = {};   ///< bits by token; empty: all tokens are
  std::span<const std::int64_t> forbidden = {};  ///< such as ends before min_tokens
};

/// Threads  one; a thread's sampler serves all its sequences.
/// Cost     temperature 0: two reads of the logits. Otherwise V exponentials, but with top_k only k
///          of them; top_p and min_p sort only the likeliest tokens. Penalties, biases and bits add
///          a copy of the logits, penalties two reads of the history. Keeps at most 28 V bytes.
class LogitSampler {
 public:
  std::int64_t choose(std::span<const float> logits, const Sampling& sampling,
                      const ChoiceContext& context);

 private:
  std::span<const float> adjust(std::span<const float> logits, const Sampling& sampling,
                                const ChoiceContext& context);
  void penalize(const Sampling& sampling, const ChoiceContext& context);
  void exclude_others(std::span<const std::uint64_t> allowed);
  void truncate(std::span<const float> logits, float top, double scale, const Sampling& sampling);

  void keep_top_p(float top, double scale, double share);

  std::vector<float> adjusted_;
  std::vector<std::int32_t> counts_;  // by token, all 0 between calls
  // Tokens that may be drawn, none if all may, ascending; their logits and weights.
  std::vector<std::int64_t> tokens_;
  std::vector<float> kept_;
  std::vector<double> weights_;
};

/// Scores `token` by log-softmax(logits) in double. The order of sums depends on V alone. Gives the
/// `likeliest` first tokens too, at most V.
/// Cost     one exponential a token: half a millisecond for V = 150,000.
ScoredToken score(std::span<const float> logits, std::int64_t token, int likeliest);

}  // namespace strata
