// The rank that decides runs a request loop for one set of requests; then it sends the answers to
// the other ranks of the replica.
#include "strata/rollout/rollouts.h"

#include <algorithm>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/serve/pass_loop.h"

namespace strata {
namespace {

std::int64_t vocabulary_of(const Sequential& model) {
  const std::vector<TensorSpec> values = model.value_specs({{.shape = {1, 1}, .dtype = at::kLong}});
  return values[model.outputs(model.num_layers() - 1).front()].shape.back();
}

// From the rank that decides to the others.
void share(Decoder& decoder, std::vector<Rollout>& rollouts) {
  Group& group = decoder.group();
  if (group.size() == 1) return;
  const MessageTag tag = group.next_collective();
  if (!decoder.decides()) {
    rollouts = rollouts_of(group.receive(decoder.deciding_rank(), tag));
    return;
  }
  const at::Tensor tensor = tensor_of(rollouts);
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.send(peer, tag, tensor);
}

void submit(RequestLoop& loop, std::span<const SequenceRequest> requests,
            std::vector<Rollout>& rollouts) {
  const auto left = std::make_shared<std::size_t>(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Rollout& rollout = rollouts[i];
    const SequenceListener listener{
        .on_prompt =
            [&rollout](std::vector<ScoredToken> tokens) { rollout.prompt = std::move(tokens); },
        .on_token = [&rollout](const ScoredToken& token) { rollout.tokens.push_back(token); },
        .on_finish =
            [&loop, &rollout, left](const Finish& finish) {
              rollout.reason = finish.reason;
              if (--*left == 0) loop.stop();
            }};
    STRATA_CHECK(loop.submit(requests[i], listener).id != 0, "rollout.answer");
  }
}

}  // namespace

Rollouts::Rollouts(Trainer& trainer, const Sequential& model, const RolloutOptions& options,
                   const Group& world)
    : trainer_(trainer),
      options_(options),
      vocabulary_(vocabulary_of(model)),
      decoder_(
          model, trainer.store(), trainer.plan(),
          {.page_tokens = options.page_tokens, .pages = options.pages},
          world.subgroup(trainer.plan().decisions().mesh.replica_ranks(world.rank()), "rollouts")) {
  const StepDecisions& decisions = trainer.plan().decisions();
  if (trainer.has_rounds()) {
    const bool outer = decisions.replicas_apart;
    throw ErrorSource{"rollout.options"}.user(
        outer ? "train.outer_steps" : "train.optimizer.kind",
        "replicas that train apart would answer by other weights each",
        outer ? "no outer steps, or one replica" : "another optimizer, or one replica",
        decisions.mesh.text(),
        outer ? "set train.outer_steps.every=0" : "set train.optimizer.kind=onebit-adam");
  }
  if (options_.context < 1)
    throw ErrorSource{"rollout.options"}.user(
        "context", "it says how many tokens a prompt and its answer may have",
        "at most the model's context", std::to_string(options_.context),
        "set it to DecoderOptions::context");
  options_.context = std::min(options_.context, options.pages * options.page_tokens);
}

std::vector<Rollout> Rollouts::answer(std::span<const SequenceRequest> requests) {
  std::vector<Rollout> rollouts(requests.size(), {.steps = trainer_.steps_done()});
  if (requests.empty()) return rollouts;
  // Its pages are empty: those of earlier calls belong to earlier weights.
  RequestLoop loop({.limits = {.pages = options_.pages,
                               .page_tokens = options_.page_tokens,
                               .context = options_.context,
                               .sequences = options_.sequences,
                               .pass_tokens = options_.pass_tokens,
                               .pass_logits = options_.pass_tokens,
                               .waiting = std::ssize(requests)},
                    .vocabulary = vocabulary_});
  // The loop of the rank that decides runs; on the others it refuses the same requests.
  submit(loop, requests, rollouts);
  run_passes(decoder_, decoder_.group(), loop);
  share(decoder_, rollouts);
  if (std::ranges::find(rollouts, FinishReason::kFailed, &Rollout::reason) != rollouts.end())
    throw ErrorSource{"rollout.answer"}.system("step " + std::to_string(trainer_.steps_done()),
                                               "the model's logits are not numbers", "numbers",
                                               "others", "train with a lower learning rate");
  return rollouts;
}

}  // namespace strata
