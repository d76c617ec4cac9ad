/// Follows one request through the passes: which of its prompt's tokens are scored, which tokens
/// its logits choose, and what its listener hears.
///
/// Threads  one.
/// Errors   UserError: logits or states that are not numbers, no token that may follow.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "strata/batching/sampler.h"
#include "strata/batching/token_service.h"

namespace strata {

class Answer {
 public:
  Answer(SequenceRequest request, SequenceListener listener)
      : request_(std::move(request)), listener_(std::move(listener)) {}

  /// Scores tokens of the prompt with the logits after the tokens from `position` on, [rows, V].
  void score_prompt(std::int64_t position, std::span<const float> logits, std::int64_t rows);

  /// Chooses tokens from the rows of `logits`, [1 + guesses, V]: the first after the last token of
  /// the sequence, the others after each guess. A row counts only if all guesses before it were
  /// chosen. Returns the chosen tokens, without one that ends the text; sets ended().
  std::vector<std::int64_t> choose(LogitSampler& sampler, std::span<const float> logits,
                                   std::span<const std::int64_t> guesses);

  /// The token that choose() would give after the answer and these guesses if the model had these
  /// logits, [V]. After a guess that ends the text: that guess again.
  std::int64_t guess(LogitSampler& sampler, std::span<const float> logits,
                     std::span<const std::int64_t> guesses) const;

  /// Whether a token that ends the text was chosen, or no token may follow.
  bool ended() const { return ended_; }
  /// Whether the prompt's scores were all that the request wanted.
  bool wants_no_token() const { return request_.max_tokens == 0; }

  void report_prompt();  ///< once, before the first token
  /// Whether report_embedding() is to be called, before the first token.
  bool wants_embedding() const { return request_.embed; }
  void report_embedding(std::span<const float> state);  ///< after the prompt's last token, [C]
  void finish(const Finish& finish);

 private:
  bool ends(std::int64_t token) const;
  std::optional<std::int64_t> next_token(LogitSampler& sampler, std::span<const float> logits,
                                         const std::vector<std::int64_t>& answer) const;

  SequenceRequest request_;
  SequenceListener listener_;
  std::vector<ScoredToken> prompt_scores_;
  std::vector<std::int64_t> tokens_;
  bool ended_ = false;
};

}  // namespace strata
