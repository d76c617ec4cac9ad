// The rank that decides runs a request loop for one set of requests; then it sends the answers to
// the other ranks of the replica as numbers.
#include "strata/rollout/rollouts.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/serve/pass_loop.h"

namespace strata {
namespace {

// The ranks of the same replica; they keep their order.
Group replica_of(const Group& world, const Mesh& mesh) {
  const MeshPlace own = mesh.place(world.rank());
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.size(); ++rank)
    if (mesh.place(rank)[Axis::kData] == own[Axis::kData]) ranks.push_back(rank);
  return world.subgroup(ranks, "rollouts");
}

std::int64_t vocabulary_of(const Sequential& model) {
  const std::vector<TensorSpec> values = model.value_specs({{.shape = {1, 1}, .dtype = at::kLong}});
  return values[model.outputs(model.num_layers() - 1).front()].shape.back();
}

// Numbers of rollouts, one after the other.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(const at::Tensor& tensor)
      : numbers_(tensor.const_data_ptr<double>(),
                 tensor.const_data_ptr<double>() + tensor.numel()) {}

  void put(const std::vector<Rollout>& rollouts) {
    for (const Rollout& rollout : rollouts) {
      put(static_cast<std::int64_t>(rollout.reason));
      put(rollout.prompt);
      put(rollout.tokens);
    }
  }
  void take(std::vector<Rollout>& rollouts) {
    for (Rollout& rollout : rollouts) {
      rollout.reason = static_cast<FinishReason>(take());
      rollout.prompt = take_tokens();
      rollout.tokens = take_tokens();
    }
  }

  at::Tensor tensor() const {
    at::Tensor all = at::empty({std::ssize(numbers_)}, host_options(at::kDouble));
    std::ranges::copy(numbers_, all.data_ptr<double>());
    return all;
  }

 private:
  // Token numbers and counts are far below 2^53.
  void put(std::int64_t number) { numbers_.push_back(static_cast<double>(number)); }
  void put(const std::vector<ScoredToken>& tokens) {
    put(std::ssize(tokens));
    for (const ScoredToken& token : tokens) {
      put(token.token);
      numbers_.push_back(token.log_probability);
      put(std::ssize(token.likeliest));
      for (const auto& [other, log_probability] : token.likeliest) {
        put(other);
        numbers_.push_back(log_probability);
      }
    }
  }
  double take_number() { return numbers_.at(next_++); }
  std::int64_t take() { return static_cast<std::int64_t>(take_number()); }
  std::vector<ScoredToken> take_tokens() {
    std::vector<ScoredToken> tokens(static_cast<std::size_t>(take()));
    for (ScoredToken& token : tokens) {
      token.token = take();
      token.log_probability = take_number();
      token.likeliest.resize(static_cast<std::size_t>(take()));
      for (auto& [other, log_probability] : token.likeliest) {
        other = take();
        log_probability = take_number();
      }
    }
    return tokens;
  }

  std::vector<double> numbers_;
  std::size_t next_ = 0;
};

// From the rank that decides to the others.
void share(Decoder& decoder, std::vector<Rollout>& rollouts) {
  Group& group = decoder.group();
  if (group.size() == 1) return;
  const MessageTag tag = group.next_collective();
  if (!decoder.decides())
    return Numbers(group.receive(decoder.deciding_rank(), tag)).take(rollouts);
  Numbers numbers;
  numbers.put(rollouts);
  const at::Tensor tensor = numbers.tensor();
  for (int peer = 0; peer < group.size(); ++peer)
    if (peer != group.rank()) group.send(peer, tag, tensor);
}

void submit(RequestLoop& loop, std::span<const SequenceRequest> requests,
            std::vector<Rollout>& rollouts, std::vector<std::string>& errors) {
  const auto left = std::make_shared<std::size_t>(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Rollout& rollout = rollouts[i];
    const SequenceListener listener{
        .on_prompt =
            [&rollout](std::vector<ScoredToken> tokens) { rollout.prompt = std::move(tokens); },
        .on_token = [&rollout](const ScoredToken& token) { rollout.tokens.push_back(token); },
        .on_finish =
            [&loop, &rollout, &errors, left](const Finish& finish) {
              rollout.reason = finish.reason;
              if (finish.reason == FinishReason::kFailed) errors.push_back(finish.error);
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
      decoder_(model, trainer.store(), trainer.plan(),
               {.page_tokens = options.page_tokens, .pages = options.pages},
               replica_of(world, trainer.plan().decisions().mesh)) {
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
  std::vector<std::string> errors;
  if (decoder_.decides()) submit(loop, requests, rollouts, errors);
  run_passes(decoder_, decoder_.group(), loop);
  if (!errors.empty())
    throw ErrorSource{"rollout.answer"}.system(
        "step " + std::to_string(trainer_.steps_done()), "the model failed: " + errors.front(),
        "logits that are numbers", "others", "train with a lower learning rate");
  share(decoder_, rollouts);
  return rollouts;
}

}  // namespace strata
