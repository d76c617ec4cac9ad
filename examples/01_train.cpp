// Trains a small GPT on one rank to recite a sentence.
//
//   build/release/01_train
//   step   1  loss 5.522
//   step 100  loss 0.006
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <string_view>

#include "strata/comm/group.h"
#include "strata/models/model.h"
#include "strata/train/trainer.h"

using namespace strata;

// Four samples of 32 bytes, each with the bytes that follow as targets.
MiniBatch make_batch(std::string_view text) {
  std::vector<std::int64_t> tokens, targets;
  for (std::size_t sample = 0; sample < 4; ++sample)
    for (std::size_t i = 0; i < 32; ++i) {
      tokens.push_back(text[(sample * 8 + i) % text.size()]);
      targets.push_back(text[(sample * 8 + i + 1) % text.size()]);
    }
  return {.inputs = {at::tensor(tokens).view({4, 32}), at::tensor(targets).view({4, 32})},
          .samples = 4,
          .valid_tokens = 4 * 32};
}

int main() {
  const Sequential model = make_gpt({.layers = 2, .width = 64, .heads = 2, .context = 32});
  const auto alone = single_rank();
  Trainer trainer(model, plan_steps(model, {.micro_batch = 2}), *alone);
  trainer.initialise();

  const MiniBatch batch = make_batch("In the beginning God created the heaven and the earth. ");
  for (int step = 1; step <= 100; ++step) {
    const StepOutcome& outcome = trainer.step(batch, /*learning_rate=*/3e-3);
    if (step == 1 || step == 100) std::printf("step %3d  loss %.3f\n", step, outcome.loss);
  }
}
