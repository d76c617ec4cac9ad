#include "strata/rollout/rollout_message.h"

#include <ATen/ops/tensor.h>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/serve/number_list.h"

namespace strata {
namespace {

void append(std::vector<std::int64_t>& numbers, const std::vector<ScoredToken>& tokens) {
  numbers.push_back(std::ssize(tokens));
  for (const ScoredToken& token : tokens) {
    numbers.push_back(token.token);
    numbers.push_back(bits_of(token.log_probability));
    numbers.push_back(std::ssize(token.likeliest));
    for (const auto& [other, log_probability] : token.likeliest)
      numbers.insert(numbers.end(), {other, bits_of(log_probability)});
  }
}

std::vector<ScoredToken> take_tokens(NumberReader& numbers) {
  std::vector<ScoredToken> tokens;
  for (std::int64_t left = numbers.next(); left > 0; --left) {
    ScoredToken& token = tokens.emplace_back();
    token.token = numbers.next();
    token.log_probability = numbers.real();
    for (std::int64_t others = numbers.next(); others > 0; --others) {
      const std::int64_t other = numbers.next();
      token.likeliest.emplace_back(other, numbers.real());
    }
  }
  return tokens;
}

}  // namespace

at::Tensor tensor_of(const std::vector<Rollout>& rollouts) {
  std::vector<std::int64_t> numbers = {std::ssize(rollouts)};
  for (const Rollout& rollout : rollouts) {
    numbers.push_back(static_cast<std::int64_t>(rollout.reason));
    numbers.push_back(rollout.steps);
    append(numbers, rollout.prompt);
    append(numbers, rollout.tokens);
  }
  return at::tensor(numbers, host_options(at::kLong));
}

std::vector<Rollout> rollouts_of(const at::Tensor& tensor) {
  NumberReader numbers(tensor);
  std::vector<Rollout> rollouts;
  for (std::int64_t left = numbers.next(); left > 0; --left) {
    Rollout& rollout = rollouts.emplace_back();
    const std::int64_t reason = numbers.next();
    STRATA_CHECK(reason >= 0 && reason <= static_cast<std::int64_t>(FinishReason::kFailed),
                 "rollout.message");
    rollout.reason = FinishReason{static_cast<int>(reason)};
    rollout.steps = numbers.next();
    rollout.prompt = take_tokens(numbers);
    rollout.tokens = take_tokens(numbers);
  }
  STRATA_CHECK(numbers.at_end(), "rollout.message");
  return rollouts;
}

}  // namespace strata
