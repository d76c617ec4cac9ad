/// Chooses an optimizer and its constants, and updates flat weight buffers in place, one pass a range,
/// through ATen's fused kernels.
///
/// Source  AdamW (Loshchilov & Hutter 2019); SGD with momentum (Sutskever et al. 2013).
/// Shapes  weights, gradients, slots: flat fp32, the same length; [0, decay_numel) is decayed.
/// Cost    AdamW reads and writes 28 bytes an element, SGD with momentum 20; 2 more with a rounded copy,
///         whose elements are written while the update has them in the cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "strata/base/options.h"

namespace strata {

enum class OptimizerKind : std::uint8_t { kAdamW, kSgd };
const char* name_of(OptimizerKind kind);  ///< "adamw", "sgd"

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.9;
};

void describe(OptionSet& set, const std::string& prefix, OptimizerOptions& options);

/// One layer's share of an update.
struct UpdateRange {
  at::Tensor weights;
  at::Tensor gradients;
  std::vector<at::Tensor> slots;
  std::int64_t decay_numel = 0;
  double gradient_factor = 1;  ///< gradients are multiplied by it first, in place
  at::Tensor rounded = {};     ///< 16 bit: becomes the updated weights; undefined: none
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual std::vector<std::string> slot_names() const = 0;  ///< e.g. {"exp_avg", "exp_avg_sq"}

  /// `step` counts from 1; `learning_rate` is the one of this step.
  virtual void update(const UpdateRange& range, std::int64_t step, double learning_rate) const = 0;
};

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace strata
