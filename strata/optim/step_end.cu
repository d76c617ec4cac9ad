// One thread: some hundred sums of layers, and a dozen numbers that the host would have to wait for.
#include "strata/device/simt.h"
#include "strata/device/step_scalars.h"
#include "strata/optim/cuda_kernels.h"
#include "strata/optim/gradient_norm.h"
#include "strata/optim/loss_scale.h"

namespace strata::cuda {
namespace {

using kernels::UpdateRule;
using kernels::UpdateStep;

struct SumLayers {
  static constexpr int kThreads = 1024;
  const double* blocks;
  const LayerBlocks* layers;
  double* sums;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    const LayerBlocks layer = layers[block.index()];
    auto partial = block.per_thread(0.0);
    block.each([&](int thread) {
      double total = 0;
      STRATA_UNROLL_4
      for (std::int64_t i = layer.begin + thread; i < layer.end; i += kThreads) total += blocks[i];
      partial[thread] = total;
    });
    const double total = block.sum(partial);
    block.each([&](int thread) {
      if (thread == 0) sums[layer.target] = total;
    });
  }
};

struct EndStep {
  static constexpr int kThreads = simt::kWarp;
  const double* sums;
  std::int64_t count;
  double clip;
  StepScalars* scalars;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      if (thread != 0) return;
      StepScalars& step = *scalars;
      double sum = 0;
      for (std::int64_t i = 0; i < count - 1; ++i) sum += sums[i];
      step.loss = sums[count - 1];
      step.squares = sum;
      step.norm = sqrt(sum) / step.loss_scale;
      step.factor = clip_factor(step.norm, clip) / step.loss_scale;
      const bool is_finite = step.norm - step.norm == 0;
      const bool skip = step.has_gradients == 0 || (step.may_skip != 0 && !is_finite);
      step.skip = skip ? 1 : 0;
      if (step.updates == 0) return;
      LossScale scale{.scale = step.loss_scale,
                      .dynamic = step.may_skip != 0,
                      .good_steps = step.good_steps,
                      .skipped = step.skipped_updates};
      if (skip) {
        scale.skip();
      } else {
        scale.good();
      }
      step.loss_scale = scale.scale;
      step.good_steps = scale.good_steps;
      step.skipped_updates = scale.skipped;
    });
  }
};

struct MoveStatistic {
  static constexpr int kThreads = 256;
  float* values;
  const float* sums;
  double momentum, found;
  std::int64_t n;
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index() * kThreads + thread;
      if (i >= n || scalars->skip != 0) return;
      values[i] = static_cast<float>((1 - momentum) * values[i] + momentum * (sums[i] / found));
    });
  }
};

// As update_step() of optimizer_options.cpp.
struct BeginUpdate {
  static constexpr int kThreads = simt::kWarp;
  UpdateConstants of;
  const StepScalars* scalars;
  UpdateStep* step;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      if (thread != 0) return;
      const double learning_rate = scalars->learning_rate;
      const auto rounded = [](double value) { return static_cast<float>(value); };
      UpdateStep result{.rule = of.rule,
                        .gradient_factor = rounded(scalars->factor),
                        .size = rounded(learning_rate),
                        .penalty = rounded(of.weight_decay),
                        .epsilon = rounded(of.epsilon),
                        .momentum = rounded(of.momentum)};
      if (of.rule == UpdateRule::kAdamW) {
        const auto n = static_cast<double>(scalars->step + 1 - scalars->skipped_updates);
        result.size = rounded(learning_rate / (1 - pow(of.beta1, n)));
        result.kept = rounded(1 - learning_rate * of.weight_decay);
        result.mean_kept = rounded(of.beta1);
        result.mean_share = rounded(1 - of.beta1);
        result.square_kept = rounded(of.beta2);
        result.square_share = rounded(1 - of.beta2);
        result.root_scale = rounded(1 / sqrt(1 - pow(of.beta2, n)));
      }
      *step = result;
    });
  }
};

}  // namespace

void sum_layers(const double* blocks, const LayerBlocks* layers, std::int64_t count, double* sums,
                void* stream) {
  simt::launch(SumLayers{blocks, layers, sums}, count, stream);
}

void end_step(const double* sums, std::int64_t count, double clip, StepScalars* scalars,
              void* stream) {
  simt::launch(EndStep{sums, count, clip, scalars}, 1, stream);
}

void move_statistic(float* values, const float* sums, double momentum, double found, std::int64_t n,
                    const StepScalars* scalars, void* stream) {
  simt::launch(MoveStatistic{values, sums, momentum, found, n, scalars},
               simt::blocks_for(n, MoveStatistic::kThreads), stream);
}

void begin_update(const UpdateConstants& constants, const StepScalars* scalars, UpdateStep* step,
                  void* stream) {
  simt::launch(BeginUpdate{constants, scalars, step}, 1, stream);
}

}  // namespace strata::cuda
