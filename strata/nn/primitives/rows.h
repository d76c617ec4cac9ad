/// Reads and updates rows of embedding matrices on one kind of device.
///
/// Shapes   tokens [B, T] int64; the rank has the rows from `first` on, others count as zero.
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

class RowPrimitives {
 public:
  virtual ~RowPrimitives() = default;

  /// The row of each token: [B, T, C].
  virtual at::Tensor gather(const at::Tensor& tokens, const at::Tensor& weight,
                            std::int64_t first) const = 0;
  /// sum of each token's row += dy, positions in ascending order.
  virtual void add_rows(const at::Tensor& tokens, const at::Tensor& dy, const at::Tensor& sum,
                        std::int64_t first) const = 0;
  /// x [B, T, C] += positions [T, C]
  virtual void add_positions(const at::Tensor& x, const at::Tensor& positions) const = 0;
  /// sum [T, C] += dy [B, T, C], samples in ascending order.
  virtual void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) const = 0;
};

}  // namespace strata
