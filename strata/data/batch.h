/// Holds what one step reads: a mini-batch, the part of it for a replica, and its micro-batches.
///
/// Shapes  tensors are [samples, ...]; a micro-batch is a slice of dimension 0, no copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "strata/base/ignored_target.h"
#include "strata/layout/context_split.h"

namespace strata {

struct MiniBatch {
  std::vector<at::Tensor> inputs;  ///< in the order of the model's batch inputs
  std::int64_t samples = 0;
  /// Targets that count (not ignored_target), of the whole step; known before backward.
  std::int64_t valid_tokens = 0;
  std::int64_t first_sample = 0;           ///< for a part: its position in the whole mini-batch
  double ignored_target = kIgnoredTarget;  ///< the target of a sample that only pads
};

struct MicroBatch {
  std::vector<at::Tensor> inputs;
  std::int64_t first_sample = 0;  ///< position in the mini-batch
};

/// A replica's consecutive samples; the counts of two replicas differ by at most one.
/// `valid_tokens` stays that of the whole mini-batch.
MiniBatch replica_batch(const MiniBatch& batch, int replica, int replicas);

/// The batch with the tokens of one rank that divides samples (axis cp): every input is [samples,
/// tokens, ...].
MiniBatch context_batch(const MiniBatch& batch, const ContextSplit& split, int rank);

/// A replica's samples of a mini-batch, without padding.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t samples = 0;
};
SampleRange replica_samples(std::int64_t samples, int replica, int replicas,
                            std::int64_t micro_batch_samples);

/// Slices of `micro_batch_samples` samples; the last one may be shorter.
std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples);

/// The number of micro-batches that every replica makes of its part, whatever its size.
std::int64_t count_micro_batches(std::int64_t samples, int replicas,
                                 std::int64_t micro_batch_samples);

/// Returns the batch itself or, if a replica's part has fewer samples than micro-batches, adds
/// copies of its first sample whose targets (the last input) are ignored, which changes no loss and
/// no gradient.
MiniBatch padded(const MiniBatch& batch, int replicas, std::int64_t micro_batch_samples);

/// The same in exactly `count` slices; the last one is halved if that is one more than needed.
/// Throws InternalError if there are fewer samples than slices, which padded() prevents.
std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples,
                              std::int64_t count);

}  // namespace strata
