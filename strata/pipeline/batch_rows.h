/// Supplies an input of micro-batches that no loader has: embeddings, pooled, for the samples of
/// this replica's part.
///
/// Threads  the rank's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

class BatchRows {
 public:
  virtual ~BatchRows() = default;

  virtual std::int64_t width() const = 0;

  /// kPrefetchRows of this step, counted from 0.
  virtual void prefetch(std::int64_t step) = 0;
  /// kFetchRows: fills [samples, width] of fp32 on the host; padding samples at the end are zeros.
  /// In evaluation `step` has no meaning: the caller knows the samples.
  virtual void fetch(std::int64_t step, bool training, const at::Tensor& rows) = 0;
  /// kSendRowGradients: gradients of the mean loss, in the layout of fetch().
  virtual void send_gradients(std::int64_t step, const at::Tensor& gradients) = 0;
};

}  // namespace strata
