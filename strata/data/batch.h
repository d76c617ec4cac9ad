/// Carries what one step reads: a mini-batch and its micro-batches.
///
/// Shapes  tensors are [samples, ...]; a micro-batch is a slice of dimension 0, no copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/base/ignored_target.h"

namespace strata {

struct MiniBatch {
  std::vector<at::Tensor> inputs;  ///< in the order of the model's batch inputs
  std::int64_t samples = 0;
  std::int64_t valid_tokens =
      0;  ///< targets that count (not kIgnoredTarget); known before backward
};

struct MicroBatch {
  std::vector<at::Tensor> inputs;
  std::int64_t first_sample = 0;  ///< position in the mini-batch
};

/// Slices of `micro_batch_samples` samples; the last one may be shorter.
std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples);

}  // namespace strata
