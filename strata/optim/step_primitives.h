/// Computes what the end of a step is made of on one kind of device: norm, clip factor, update. The host
/// gives tensors and the step's block of numbers; it is told nothing.
///
/// Shapes   contiguous; sums fp64. `scalars` is in the device's memory.
/// Threads  const; work is shared among the caller's pool, or given to the device's current stream.
/// Errors   UserError from step_primitives(): this build has none for that kind. InternalError: tensors
///          that don't belong together.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <span>

#include "strata/base/flat_range.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/step_end.h"

namespace strata {

/// What a part of a layer has of a running statistic, and that of the step's whole mini-batch.
struct StatisticRange {
  at::Tensor values;  ///< fp32
  at::Tensor found;   ///< fp64
  double momentum = 0;
};

class StepPrimitives {
 public:
  virtual ~StepPrimitives() = default;

  /// As block_sums() of gradient_norm.h: `sums` of a layer's blocks, all of them written.
  virtual void block_sums(const at::Tensor& gradients, FlatRange part,
                          std::span<const FlatRange> counted, const at::Tensor& sums) const = 0;
  /// As of step_end.h.
  virtual void sum_layers(const at::Tensor& blocks, std::span<const LayerBlocks> layers,
                          const at::Tensor& sums) const = 0;
  virtual void end_step(const at::Tensor& sums, double clip, StepScalars& scalars) const = 0;

  /// What every range's update needs, once: behind end_step(), if the step has one.
  virtual BegunUpdate begin_update(const kernels::UpdateConstants& constants,
                                   const StepScalars& scalars, Device device) const = 0;
  virtual void update(kernels::UpdateRule rule, const UpdateRange& range,
                      const BegunUpdate& step) const = 0;

  /// Towards that of the mini-batch; in fp64, rounded once. Not if the update is skipped.
  virtual void move_statistic(const StatisticRange& range, const StepScalars& scalars) const = 0;
};

/// Those that were chosen for that kind of device (nn/primitives/primitive_choice.h).
const StepPrimitives& step_primitives(c10::DeviceType kind);

const StepPrimitives& host_step_primitives();
const StepPrimitives& cuda_step_primitives();
/// For any device, by ATen alone: updates and masks of skipped ones have the host's bits, sums of
/// squares another order. A range is updated in pieces of 4 Mi elements, in about 25 operations each.
const StepPrimitives& aten_step_primitives();

}  // namespace strata
