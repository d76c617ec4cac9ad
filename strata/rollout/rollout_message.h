/// Carries rollouts from the rank that decides to the others of its replica, as a tensor of int64.
///
/// Errors  InternalError: a tensor that carries no rollouts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/batching/token_service.h"

namespace strata {

struct Rollout {
  std::vector<ScoredToken> prompt = {};  ///< with SequenceRequest::score_prompt
  std::vector<ScoredToken> tokens = {};
  FinishReason reason = FinishReason::kStop;
  std::int64_t steps = 0;  ///< of the trainer before this answer: the version of the weights
};

at::Tensor tensor_of(const std::vector<Rollout>& rollouts);
std::vector<Rollout> rollouts_of(const at::Tensor& tensor);

}  // namespace strata
