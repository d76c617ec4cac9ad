// A thread block sums the blocks of a layer. One thread computes the dozen numbers that follow from
// some hundred sums, so that the host need not wait for them.
#include "strata/device/simt/simt.h"
#include "strata/optim/cuda_kernels.h"

namespace strata::cuda {
namespace {

using kernels::UpdateConstants;
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
      double squares = 0;
      for (std::int64_t i = 0; i < count - 1; ++i) squares += sums[i];
      strata::end_step(squares, sqrt(squares), sums[count - 1], clip, *scalars);
    });
  }
};

struct MoveStatistic {
  static constexpr int kThreads = 256;
  float* values;
  const double* found;
  double momentum;
  std::int64_t n;
  const StepScalars* scalars;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      const std::int64_t i = block.index() * kThreads + thread;
      if (i >= n || scalars->skip != 0) return;
      values[i] = moved_statistic(values[i], found[i], momentum);
    });
  }
};

struct BeginUpdate {
  static constexpr int kThreads = simt::kWarp;
  UpdateConstants of;
  const StepScalars* scalars;
  UpdateStep* step;

  STRATA_DEVICE void operator()(simt::Block<kThreads>& block) const {
    block.each([&](int thread) {
      if (thread != 0) return;
      const auto n = static_cast<double>(update_number(*scalars));
      *step = kernels::update_step(of, {1 - pow(of.beta1, n), sqrt(1 - pow(of.beta2, n))},
                                   scalars->learning_rate, scalars->factor);
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

void move_statistic(float* values, const double* found, double momentum, std::int64_t n,
                    const StepScalars* scalars, void* stream) {
  simt::launch(MoveStatistic{values, found, momentum, n, scalars},
               simt::blocks_for(n, MoveStatistic::kThreads), stream);
}

void begin_update(const UpdateConstants& constants, const StepScalars* scalars, UpdateStep* step,
                  void* stream) {
  simt::launch(BeginUpdate{constants, scalars, step}, 1, stream);
}

}  // namespace strata::cuda
