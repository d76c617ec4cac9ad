#include "strata/serve/answer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kEmbeddingErrors{"serve.embedding", "check the model's weights"};

}  // namespace

void Answer::score_prompt(std::int64_t position, std::span<const float> logits, std::int64_t rows) {
  const auto vocabulary = static_cast<std::int64_t>(logits.size()) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t next = position + row + 1;
    if (next <= std::ssize(prompt_scores_)) continue;  // scored before set_weights()
    prompt_scores_.push_back(score(logits.subspan(row * vocabulary, vocabulary),
                                   request_.prompt.at(next), request_.likeliest.value_or(0)));
  }
}

void Answer::report_prompt() {
  if (!request_.score_prompt) return;
  request_.score_prompt = false;
  if (listener_.on_prompt) listener_.on_prompt(std::move(prompt_scores_));
}

void Answer::report_embedding(std::span<const float> state) {
  request_.embed = false;
  const auto bad = std::ranges::find_if_not(state, [](float x) { return std::isfinite(x); });
  if (bad != state.end())
    throw kEmbeddingErrors.user("element " + std::to_string(bad - state.begin()),
                                "the model's state is not a finite number", "a finite number",
                                std::to_string(*bad));
  if (listener_.on_embedding) listener_.on_embedding({state.begin(), state.end()});
}

std::vector<std::int64_t> Answer::choose(LogitSampler& sampler, std::span<const float> logits,
                                         std::span<const std::int64_t> guesses) {
  const std::size_t vocabulary = logits.size() / (guesses.size() + 1);
  std::vector<std::int64_t> chosen;
  for (std::size_t row = 0; row <= guesses.size(); ++row) {
    const auto z = logits.subspan(row * vocabulary, vocabulary);
    const std::optional<std::int64_t> token = next_token(sampler, z, tokens_);
    ended_ = !token || ends(*token);
    if (ended_) return chosen;
    chosen.push_back(*token);
    tokens_.push_back(*token);
    if (listener_.on_token)
      listener_.on_token(request_.likeliest ? score(z, *token, *request_.likeliest)
                                            : ScoredToken{.token = *token});
    if (row == guesses.size() || guesses[row] != *token) return chosen;
  }
  return chosen;
}

std::int64_t Answer::guess(LogitSampler& sampler, std::span<const float> logits,
                           std::span<const std::int64_t> guesses) const {
  if (!guesses.empty() && ends(guesses.back())) return guesses.back();
  std::vector<std::int64_t> answer = tokens_;
  answer.insert(answer.end(), guesses.begin(), guesses.end());
  try {
    return next_token(sampler, logits, answer).value_or(0);
  } catch (const Error&) {
    return 0;  // the draft model's logits are no numbers, or the grammar has ended
  }
}

bool Answer::ends(std::int64_t token) const {
  return std::ranges::find(request_.ends, token) != request_.ends.end();
}

std::optional<std::int64_t> Answer::next_token(LogitSampler& sampler, std::span<const float> logits,
                                               const std::vector<std::int64_t>& answer) const {
  const std::vector<std::uint64_t> allowed =
      request_.allowed ? request_.allowed(answer) : std::vector<std::uint64_t>();
  if (request_.allowed && std::ranges::all_of(allowed, [](auto bits) { return bits == 0; }))
    return std::nullopt;
  const bool may_end = std::ssize(answer) >= request_.min_tokens;
  return sampler.choose(logits, request_.sampling,
                        {.prompt = request_.prompt,
                         .answer = answer,
                         .allowed = allowed,
                         .forbidden = may_end ? std::span<const std::int64_t>() : request_.ends});
}

void Answer::finish(const Finish& finish) {
  if (listener_.on_finish) listener_.on_finish(finish);
}

}  // namespace strata
