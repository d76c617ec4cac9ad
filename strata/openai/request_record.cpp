#include "strata/openai/request_record.h"

namespace strata {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void RequestRecord::start(std::size_t prompt_tokens, std::int64_t max_tokens, std::size_t choices) {
  last_token_.assign(choices, start_);
  metrics_->started(prompt_tokens, max_tokens, choices);
}

void RequestRecord::take_back() {
  metrics_->ended("refused", seconds_between(start_, Clock::now()));
  release(0);
}

void RequestRecord::token(std::size_t choice) {
  const Clock::time_point now = Clock::now();
  Clock::time_point& last = last_token_[choice];
  if (last == start_)
    metrics_->first_token(seconds_between(start_, now));
  else
    metrics_->next_token(seconds_between(last, now));
  last = now;
}

void RequestRecord::choice_ended(const std::string& finish_reason, std::int64_t tokens) {
  if (finish_reason == "abort" || finish_reason == "error") outcome_ = finish_reason;
  metrics_->choice_ended(finish_reason, tokens);
}

void RequestRecord::end(const Usage& usage) {
  if (ended_) return;
  metrics_->ended(outcome_, seconds_between(start_, Clock::now()));
  release(usage.prompt_tokens + usage.completion_tokens);
}

void RequestRecord::release(std::int64_t tokens) {
  ended_ = true;
  if (use_ != nullptr) use_->settle(tokens);
  use_ = nullptr;
}

}  // namespace strata
