// Trains one model on one rank and on eight: 2 stages x 2 replicas x 2 tensor-parallel ranks, with
// ZeRO. Sums run in another order, so the losses agree to rounding.
//
//   build/release/03_mesh
//   step  1  one rank 5.5598  eight ranks 5.5598
//   step 20  one rank 2.5239  eight ranks 2.5239
//   agree
#include <ATen/ops/tensor.h>

#include <cmath>
#include <cstdio>
#include <string_view>

#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/train/trainer.h"

using namespace strata;

constexpr int kSamples = 8, kContext = 32;

MiniBatch make_batch(std::string_view text) {
  std::vector<std::int64_t> tokens, targets;
  for (std::size_t i = 0; i < kSamples * kContext; ++i) {
    tokens.push_back(text[i % text.size()]);
    targets.push_back(text[(i + 1) % text.size()]);
  }
  return {.inputs = {at::tensor(tokens).view({kSamples, kContext}),
                     at::tensor(targets).view({kSamples, kContext})},
          .samples = kSamples,
          .valid_tokens = kSamples * kContext};
}

std::vector<double> train(const Mesh& mesh, int zero, const Partition& partition) {
  const Sequential model =  // for one slice: the layers' code is the same
      make_gpt({.layers = 4, .width = 64, .heads = 2, .context = kContext, .dropout = 0.1},
               DecoderOutput::kLoss, {.ranks = mesh[Axis::kTensor]});
  const MiniBatch batch = make_batch("In the beginning God created the heaven and the earth. ");
  const StepPlan plan = plan_steps(
      model, {.mesh = mesh, .partition = partition, .zero = {.stage = zero}, .micro_batch = 2});
  std::vector<double> losses;
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group);
    trainer.initialise();
    for (int step = 0; step < 20; ++step) {
      const double loss = trainer.step(batch, /*learning_rate=*/3e-3).loss;
      if (group.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

int main() {
  const auto one = train({}, 0, {{0, 6}}),
             eight = train({{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}}, 3,
                           {{0, 3, 6}});
  for (const std::size_t step : {0, 19})
    std::printf("step %2zu  one rank %.4f  eight ranks %.4f\n", step + 1, one[step], eight[step]);
  std::puts(std::abs(one[19] - eight[19]) < 1e-4 ? "agree" : "differ");
}
