/// Makes a mini-batch of tensors that a caller brings.
///
/// Shapes  tensors are [samples, ...], in the order of Task::batch_inputs(): the targets come last.
/// Errors  UserError `[task.batch]`: another number of tensors, another type, other sizes, samples
///         that differ in number. Integers of any width become int64; nothing else is converted.
#pragma once

#include <vector>

#include "strata/data/batch.h"
#include "strata/nn/graph/layer.h"

namespace strata {

/// Refuses tensors that do not fit; returns them contiguous, in the types of `specs`, which are
/// those of one sample.
std::vector<at::Tensor> fitting_tensors(std::vector<at::Tensor> tensors,
                                        const std::vector<TensorSpec>& specs);

/// A mini-batch whose targets are integers; kIgnoredTarget does not count.
MiniBatch tensor_batch(std::vector<at::Tensor> tensors, const std::vector<TensorSpec>& specs);

}  // namespace strata
