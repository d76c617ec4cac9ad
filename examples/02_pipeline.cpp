// Trains the same model on one, two and three pipeline stages: every bit of the loss is the same
// (which bits depends on the processor).
//
//   build/release/02_pipeline
//   1 stage   loss 0x1.e8b223dp+0
//   2 stages  loss 0x1.e8b223dp+0
//   3 stages  loss 0x1.e8b223dp+0
//   equal
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <string_view>

#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/train/trainer.h"

using namespace strata;

constexpr int kSamples = 6, kContext = 32;

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

double train(const Sequential& model, int stages) {
  const MiniBatch batch = make_batch("In the beginning God created the heaven and the earth. ");
  Partition partition;  // layers [bounds[s], bounds[s + 1]) are stage s
  for (int s = 0; s <= stages; ++s) partition.bounds.push_back(model.num_layers() * s / stages);
  const StepPlan plan = plan_steps(model, {.partition = partition, .micro_batch = 2});
  double loss = 0;
  run_thread_ranks({.ranks = stages}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group);
    trainer.initialise();
    for (int step = 0; step < 20; ++step) {
      const double now = trainer.step(batch, /*learning_rate=*/3e-3).loss;
      if (group.rank() == 0) loss = now;
    }
  });
  return loss;
}

int main() {
  const Sequential model =
      make_gpt({.layers = 4, .width = 64, .heads = 2, .context = kContext, .dropout = 0.1});
  const double one = train(model, 1), two = train(model, 2), three = train(model, 3);
  std::printf("1 stage   loss %a\n2 stages  loss %a\n3 stages  loss %a\n", one, two, three);
  std::puts(one == two && two == three ? "equal" : "different");
  return one == two && two == three ? 0 : 1;
}
