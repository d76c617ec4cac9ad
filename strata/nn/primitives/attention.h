/// Computes causal attention and rotary positions on one kind of device.
///
/// Shapes   q, k, v [B, T, heads, width], the heads of a token next to one another; keys and values
///          may have fewer heads, each shared by neighbouring heads of q.
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace strata {

enum class RopeTurn : std::uint8_t { kForward, kBack };

/// Attention's output [B, T, heads * width], and what the same primitives also need for the
/// gradient: one number per row and head, [B, heads, T], or nothing.
struct Attended {
  at::Tensor y, log_sum;
};

class AttentionPrimitives {
 public:
  virtual ~AttentionPrimitives() = default;

  /// Turns in place; table [T, width] fp32.
  virtual void rotate(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) const = 0;
  virtual Attended attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const = 0;
  /// Writes dq, dk, dv, shaped as q, k, v.
  virtual void attend_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const Attended& attended, const at::Tensor& dy, const at::Tensor& dq,
                               const at::Tensor& dk, const at::Tensor& dv) const = 0;
  /// Attends from the last tokens of a text to all of them: q [B, T, heads, width], keys and values
  /// [B, heads, positions, width], of which the last T are q's own. Returns only the output.
  virtual at::Tensor attend_last(const at::Tensor& q, const at::Tensor& keys,
                                 const at::Tensor& values) const = 0;
};

}  // namespace strata
