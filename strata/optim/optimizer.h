/// Updates ranges of tensors by an optimizer: on the host by the rank's threads.
///
/// Shapes  weights, slots, gradients: flat, all of the same length on one device; [0, decay_numel) is
///         decayed. Cuts and threads change no bit.
/// Cost    one pass over memory (update_kernels.h).
/// Errors  InternalError: tensors that don't belong together.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/optim/optimizer_options.h"

namespace strata {

struct StepScalars;

/// One layer's share of an update; maybe nothing.
struct UpdateRange {
  at::Tensor weights;             ///< fp32, or bf16 with a remainder
  at::Tensor gradients;           ///< fp32 or 16 bit; read only
  std::vector<at::Tensor> slots;  ///< fp32
  std::int64_t decay_numel = 0;
  at::Tensor rounded = {};    ///< 16 bit: becomes the updated weights; undefined: none
  at::Tensor remainder = {};  ///< int16: what bf16 weights lack (master_weights.h)
};

/// The update of a step, begun: what its ranges have in common, made once and where they are.
struct BegunUpdate {
  /// Where they were when it began, and are as long as ranges are updated.
  const StepScalars* scalars;
  at::Tensor constants;  ///< as the StepPrimitives that began it read them
};

/// Of tensors that belong together, on one device.
kernels::UpdateArrays update_arrays(const UpdateRange& range, int num_slots);

class Optimizer {
 public:
  explicit Optimizer(OptimizerOptions options) : options_(options) {}

  std::vector<std::string> slot_names() const { return strata::slot_names(rule_of(options_)); }

  /// `step` counts from 1; `learning_rate` is the one of this step; gradients are multiplied by their
  /// factor.
  void update(const UpdateRange& range, std::int64_t step, double learning_rate,
              double gradient_factor = 1) const;

  /// The same with the step's numbers where the tensors are, on whatever device: nothing happens if
  /// they say that the update is skipped.
  BegunUpdate begin_update(const StepScalars& scalars, Device device) const;
  void update(const UpdateRange& range, const BegunUpdate& step) const;

 private:
  OptimizerOptions options_;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// The same on raw memory: elements [0, numel) of the arrays, on the calling thread's pool.
void update_on_threads(const kernels::UpdateStep& step, const kernels::UpdateArrays& arrays,
                       std::int64_t numel);

}  // namespace strata
