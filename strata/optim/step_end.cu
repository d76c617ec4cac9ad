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

struct StepEnd {
  static constexpr int kThreads = simt::kWarp;
  const double* squares;
  std::int64_t count;
  double clip;
  StepScalars* scalars;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      if (thread != 0) return;
      StepScalars& step = *scalars;
      double sum = 0;
      for (std::int64_t i = 0; i < count; ++i) sum += squares[i];
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

void step_end(const double* squares, std::int64_t count, double clip, StepScalars* scalars,
              void* stream) {
  simt::launch(StepEnd{squares, count, clip, scalars}, 1, stream);
}

void begin_update(const UpdateConstants& constants, const StepScalars* scalars, UpdateStep* step,
                  void* stream) {
  simt::launch(BeginUpdate{constants, scalars, step}, 1, stream);
}

}  // namespace strata::cuda
