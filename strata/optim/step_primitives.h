/// Declares the operations of a step's end on one kind of device: norm, clip factor, update.
/// Results stay in the step's scalars; the host does not read them.
///
/// Shapes   contiguous; sums fp64. `scalars` is in the device's memory.
/// Threads  const; work runs on the caller's pool or the device's current stream.
/// Errors   UserError from step_primitives(): this build has none for that kind. InternalError:
///          tensors of a wrong length, dtype or device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <span>

#include "strata/base/flat_range.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/step_end.h"

namespace strata {

/// The values of a running statistic and those of the step's mini-batch, for a part of a layer.
struct StatisticRange {
  at::Tensor values;  ///< fp32
  at::Tensor found;   ///< fp64
  double momentum = 0;
};

class StepPrimitives {
 public:
  virtual ~StepPrimitives() = default;

  /// As block_sums() of gradient_norm.h; writes every block of the layer.
  virtual void block_sums(const at::Tensor& gradients, FlatRange part,
                          std::span<const FlatRange> counted, const at::Tensor& sums) const = 0;
  /// As sum_layers() and end_step() of step_end.h.
  virtual void sum_layers(const at::Tensor& blocks, std::span<const LayerBlocks> layers,
                          const at::Tensor& sums) const = 0;
  virtual void end_step(const at::Tensor& sums, double clip, StepScalars& scalars) const = 0;

  /// Computes what the updates of all ranges share; called once per step, after end_step() if there
  /// is one.
  virtual BegunUpdate begin_update(const kernels::UpdateConstants& constants,
                                   const StepScalars& scalars, Device device) const = 0;
  virtual void update(kernels::UpdateRule rule, const UpdateRange& range,
                      const BegunUpdate& step) const = 0;

  /// Moves values towards those of the mini-batch in fp64, rounded once; no-op if the update is
  /// skipped.
  virtual void move_statistic(const StatisticRange& range, const StepScalars& scalars) const = 0;
};

/// The primitives chosen for that kind of device (nn/primitives/primitive_choice.h).
const StepPrimitives& step_primitives(c10::DeviceType kind);

const StepPrimitives& host_step_primitives();
const StepPrimitives& cuda_step_primitives();
/// Primitives for any device, from ATen alone. Updates and the masks of skipped ones have the
/// host's bits; sums of squares have another order. A range is updated in pieces of 4 Mi elements,
/// about 25 operations each.
const StepPrimitives& aten_step_primitives();

}  // namespace strata
