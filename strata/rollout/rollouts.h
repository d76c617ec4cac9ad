/// Answers requests with the weights of a running trainer, in place, between its steps: what
/// reinforcement learning needs. Nothing is copied or written; a step's weights answer as soon as
/// the step has ended.
///
///     Rollouts rollouts(trainer, decoder_model, {.context = options.context}, world);
///     for (...) {
///       trainer.step(batch, learning_rate);
///       for (const Rollout& rollout : rollouts.answer(requests)) ...
///     }
///
/// Answers have the bits of a decoder that was filled from a checkpoint of that step
/// (serve/decoder.h), and training goes on as without them. The ranks that hold one copy of the
/// model answer its own requests: with dp replicas and cp parts of samples, dp x cp times as many.
///
/// Threads  one rank's thread; collective over the ranks of a replica, which pass the same
///          requests.
/// Cost     pages of keys and values of all ranks' accounts from construction on.
/// Errors   UserError: as Decoder's; ModelService::submit()'s for a request. SystemError: logits
///          that are not numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strata/batching/token_service.h"
#include "strata/rollout/rollout_message.h"
#include "strata/serve/decoder.h"
#include "strata/train/trainer.h"

namespace strata {

struct RolloutOptions {
  std::int64_t context = 0;  ///< tokens of the longest sequence: the model's, or fewer
  std::int64_t page_tokens = 64;
  std::int64_t pages = 64;
  std::int64_t sequences = 16;     ///< that share a pass
  std::int64_t pass_tokens = 512;  ///< of all sequences
};

class Rollouts {
 public:
  /// `model`: of the trainer's weights, with logits as its output; `world`: the trainer's. The
  /// trainer and the model must outlive it.
  Rollouts(Trainer& trainer, const Sequential& model, const RolloutOptions& options,
           const Group& world);

  /// Returns the answers in the order of the requests, on every rank of the replica. Only tokens
  /// are returned: SequenceRequest::embed has no effect.
  std::vector<Rollout> answer(std::span<const SequenceRequest> requests);

 private:
  Trainer& trainer_;
  RolloutOptions options_;
  std::int64_t vocabulary_ = 0;
  Decoder decoder_;
};

}  // namespace strata
