/// Where a machine gets an input of its micro-batches that no loader has: rows of embeddings, pooled, for
/// the samples of this replica's part.
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
  /// kFetchRows: fills [samples, width] of fp32 on the host; samples that only pad the part are zeros
  /// behind the others. In evaluation the step means nothing: the caller knows which samples it runs.
  virtual void fetch(std::int64_t step, bool training, const at::Tensor& rows) = 0;
  /// kSendRowGradients: of the mean loss, as fetched.
  virtual void send_gradients(std::int64_t step, const at::Tensor& gradients) = 0;
};

}  // namespace strata
