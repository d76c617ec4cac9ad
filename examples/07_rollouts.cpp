// Teaches a model to write sevens by trial: it answers with the weights of the last step, in place,
// and trains on the answers that have the most sevens. Two stages, one process.
//   build/release/07_rollouts
//   step  0  sevens 0.9 of 15
//   step 40  sevens 14.8 of 15
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/rollout/rollouts.h"

using namespace strata;

namespace {

constexpr std::int64_t kDigits = 16, kAnswer = 15, kAnswers = 64, kBest = 16;
constexpr int kSteps = 40;

std::int64_t sevens(const Rollout& rollout) {
  return std::ranges::count(rollout.tokens, 7, &ScoredToken::token);
}

// Other seeds in each step.
std::vector<SequenceRequest> requests(int step) {
  std::vector<SequenceRequest> all;
  for (std::int64_t i = 0; i < kAnswers; ++i)
    all.push_back({.prompt = {0},
                   .max_tokens = kAnswer,
                   .sampling = {.seed = static_cast<std::uint64_t>(step * kAnswers + i)}});
  return all;
}

MiniBatch batch_of(std::span<const Rollout> rollouts) {
  std::vector<std::int64_t> tokens, targets;
  for (const Rollout& rollout : rollouts) {
    tokens.push_back(0);
    for (const ScoredToken& token : rollout.tokens) {
      if (std::ssize(tokens) % kAnswer != 0) tokens.push_back(token.token);
      targets.push_back(token.token);
    }
  }
  return {{at::tensor(tokens).view({kBest, kAnswer}), at::tensor(targets).view({kBest, kAnswer})},
          kBest,
          kBest * kAnswer};
}

}  // namespace

int main() {
  const DecoderOptions options{
      .layers = 2, .width = 32, .heads = 2, .vocab = kDigits, .context = kAnswer + 1};
  const Sequential model = make_model(options, DecoderOutput::kLoss);
  const Sequential decoder = make_model(options, DecoderOutput::kLogits);
  const StepPlan plan = plan_steps(
      model, {.mesh = {{Axis::kPipeline, 2}}, .partition = {{0, 2, 4}}, .micro_batch = 8});
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group);
    trainer.initialise();
    Rollouts rollouts(trainer, decoder, {.context = options.context, .sequences = kAnswers}, group);
    for (int step = 0; step <= kSteps; ++step) {
      std::vector<Rollout> answers = rollouts.answer(requests(step));
      double mean = 0;
      for (const Rollout& answer : answers) mean += static_cast<double>(sevens(answer)) / kAnswers;
      if (group.rank() == 0 && step % kSteps == 0)
        std::printf("step %2d  sevens %.1f of %d\n", step, mean, static_cast<int>(kAnswer));
      std::ranges::stable_sort(answers, std::ranges::greater(), sevens);
      trainer.step(batch_of(std::span(answers).first(kBest)), 1e-2);
    }
  });
}
