// One model on one rank and on eight: 2 stages x 2 replicas x 2 tensor-parallel ranks, with ZeRO.
// Sums run in another order, so the losses agree to rounding.
//
//   build/release/03_mesh
//   step  1  one rank 5.5541  eight ranks 5.5541
//   step 20  one rank 1.9052  eight ranks 1.9052
//   rank 5 (pp 1/2, tp 1/2, dp 0/2) keeps 12,544 of 101,632 optimizer states
#include <ATen/ops/tensor.h>

#include <cmath>
#include <cstdio>
#include <string_view>

#include "strata/comm/thread_ranks.h"
#include "strata/models/gpt.h"
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

std::vector<double> train(const Mesh& mesh, int zero) {
  const Sequence model =
      make_gpt({.layers = 4, .width = 64, .heads = 2, .context = kContext, .dropout = 0.1},
               GptOutput::kLoss, {.ranks = mesh.tp, .sequence = mesh.tp > 1});
  const int layers = model.num_layers();
  const Partition partition{mesh.pp == 1 ? std::vector<int>{0, layers}
                                         : std::vector<int>{0, layers / 2, layers}};
  const MiniBatch batch = make_batch("In the beginning God created the heaven and the earth. ");
  std::vector<double> losses;
  run_thread_ranks({.ranks = mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, {.mesh = mesh, .zero = zero, .partition = partition, .micro_batch = 2},
                    group);
    trainer.initialise();
    for (int step = 0; step < 20; ++step) {
      const double loss = trainer.step(batch, /*learning_rate=*/3e-3).loss;
      if (group.rank() == 0) losses.push_back(loss);
    }
    std::int64_t kept = 0, all = 0;
    for (const NamedState& state : trainer.slots()) {
      for (const Run& run : state.runs) kept += run.numel;
      all += state.numel();
    }
    if (group.rank() == 5)
      std::printf("%s keeps %ld of its stage's %ld optimizer states\n", mesh.name(5).c_str(),
                  static_cast<long>(kept), static_cast<long>(all));
  });
  return losses;
}

int main() {
  const std::vector<double> one = train({}, 0), eight = train({.pp = 2, .dp = 2, .tp = 2}, 1);
  for (const std::size_t step : {0, 19})
    std::printf("step %2zu  one rank %.4f  eight ranks %.4f\n", step + 1, one[step], eight[step]);
  return std::abs(one[19] - eight[19]) < 1e-4 ? 0 : 1;
}
