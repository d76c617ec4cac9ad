/// Updates ranges of tensors with an optimizer, on the host with the rank's threads.
///
/// Shapes  weights, slots, gradients: flat, of the same length, on one device; weight decay applies
///         to [0, decay_numel). Cuts and threads change no bit.
/// Cost    one pass over memory (update_kernels.h).
/// Errors  InternalError: tensors of a wrong length or dtype, or not contiguous.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/optim/optimizer_options.h"

namespace strata {

struct StepScalars;

/// One layer's part of an update; may be empty.
struct UpdateRange {
  at::Tensor weights;             ///< fp32, or bf16 with a remainder
  at::Tensor gradients;           ///< fp32 or 16 bit; read only
  std::vector<at::Tensor> slots;  ///< fp32
  std::int64_t decay_numel = 0;
  at::Tensor rounded = {};    ///< 16 bit: receives the updated weights; undefined: no copy
  at::Tensor remainder = {};  ///< int16: what bf16 weights lack (master_weights.h)
};

/// The constants of one step's update, computed once on the device of the ranges.
struct BegunUpdate {
  /// The step's scalars on that device; they must outlive the updates of all ranges.
  const StepScalars* scalars;
  at::Tensor constants;  ///< in the format of the StepPrimitives that made them
};

/// Elements [part.begin, part.end) of a range.
UpdateRange narrowed(const UpdateRange& range, FlatRange part);

/// The pointers of a range's tensors. Throws InternalError as above.
kernels::UpdateArrays update_arrays(const UpdateRange& range, int num_slots);

class Optimizer {
 public:
  explicit Optimizer(OptimizerOptions options) : options_(options) {}

  const OptimizerOptions& options() const { return options_; }
  /// Whether hidden matrices are updated whole (muon.h), with the first slot as their velocity.
  bool orthogonalises() const { return options_.kind == OptimizerKind::kMuon; }

  /// Whether weights with decay move by shares of their norms (lamb.h).
  bool has_trust_ratios() const {
    return options_.kind == OptimizerKind::kLamb || freezes_trust_ratios();
  }
  /// Whether these ratios are frozen with the variances (one_bit_lamb.h).
  bool freezes_trust_ratios() const { return options_.kind == OptimizerKind::kOneBitLamb; }

  /// Whether replicas keep their gradients in this update, counted from 1, and move by the signs of
  /// momenta that they send (one_bit_adam.h), or apart.
  bool sends_signs(std::int64_t update) const;
  /// Whether all replicas have the same weights after this update.
  bool synchronises(std::int64_t update) const;

  std::vector<std::string> slot_names() const;

  /// `step` counts from 1; `learning_rate` is that of this step; gradients are multiplied by
  /// `gradient_factor`. With trust ratios the range must be of weights without decay.
  void update(const UpdateRange& range, std::int64_t step, double learning_rate,
              double gradient_factor = 1) const;

  /// The same with the step's scalars on the tensors' device; nothing is updated if they say skip.
  BegunUpdate begin_update(const StepScalars& scalars, Device device) const;
  void update(const UpdateRange& range, const BegunUpdate& step) const;

 private:
  void require_no_ratios(const UpdateRange& range) const;
  UpdateRange with_slots_of_rule(UpdateRange range) const;

  OptimizerOptions options_;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

/// Updates elements [0, numel) of raw memory with the calling thread's pool.
void update_on_threads(const kernels::UpdateStep& step, const kernels::UpdateArrays& arrays,
                       std::int64_t numel);

}  // namespace strata
