// Trains a model whose weights, gradients and optimizer states are ten times the device's budget:
// they live in host memory, two layers at a time are on the device, and every bit equals training
// in memory.
//   build/release/05_offload
//   in memory   loss 0x1.eeb92cp+0  device peak 18.5 MiB
//   offloaded   loss 0x1.eeb92cp+0  device peak 0.8 MiB
//   equal
#include <ATen/ops/arange.h>

#include <cstdio>

#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/train/trainer.h"

using namespace strata;

namespace {

struct Result {
  double loss = 0;
  std::int64_t device_peak_bytes = 0;
};

Result train(const TierLayout& tiers, std::int64_t device_bytes) {
  const DecoderOptions options{
      .layers = 24, .width = 64, .heads = 4, .vocab = 64, .context = 8, .tie = false};
  const Sequential model = make_model(options, DecoderOutput::kLoss);
  const StepPlan plan =
      plan_steps(model, {.recompute = LayerSet::all(model.num_layers() - 1), .tiers = tiers});
  Result result;
  run_thread_ranks({.device_bytes = device_bytes}, [&](Group& group, MemoryAccount& account) {
    Trainer trainer(model, plan, group);
    trainer.initialise();
    const at::Tensor text = at::arange(9).view({1, 9});
    const MiniBatch batch{{text.narrow(1, 0, 8).contiguous(), text.narrow(1, 1, 8).contiguous()},
                          /*samples=*/1,
                          /*valid_tokens=*/8};
    for (int step = 0; step < 20; ++step) result.loss = trainer.step(batch, 1e-3).loss;
    result.device_peak_bytes = account.peak_bytes();
  });
  return result;
}

}  // namespace

int main() {
  const LayerTiers on_host{Tier::kHost, Tier::kHost, Tier::kHost};
  const Result in_memory = train({}, 0);
  const std::int64_t budget = in_memory.device_peak_bytes / 10;
  const Result offloaded = train({.layers = std::vector(26, on_host)}, budget);
  constexpr double kMiB = 1 << 20;
  std::printf("in memory   loss %a  device peak %.1f MiB\n", in_memory.loss,
              static_cast<double>(in_memory.device_peak_bytes) / kMiB);
  std::printf("offloaded   loss %a  device peak %.1f MiB\n", offloaded.loss,
              static_cast<double>(offloaded.device_peak_bytes) / kMiB);
  std::puts(in_memory.loss == offloaded.loss ? "equal" : "different");
}
