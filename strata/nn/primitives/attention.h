/// Computes causal attention, whole or block by block, and rotary positions on one kind of device.
///
/// Shapes   q, k, v [B, T, heads, width], the heads of a token next to one another; keys and values
///          may have fewer heads, each shared by neighbouring heads of q.
/// Threads  const, callable from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "strata/nn/primitives/attention_pattern.h"

namespace strata {

enum class RopeTurn : std::uint8_t { kForward, kBack };

/// Attention's output [B, T, heads * width], and what the same primitives also need for the
/// gradient: one number per row and head, [B, heads, T], or nothing.
struct Attended {
  at::Tensor y, log_sum;
};

/// Some tokens' queries and keys of the same number of tokens, all of them at or before them.
/// Attention to many keys is made of such blocks, the queries' own first.
struct AttentionBlock {
  at::Tensor q, k, v;
  bool own = false;  ///< the keys of the queries' own tokens: those after a query are masked
};

/// New tokens of a text whose keys and values lie in pages.
struct PagedText {
  /// Token i lies in page i / page_tokens of this list. The new tokens' own keys and values are
  /// there.
  std::span<const std::int32_t> pages;
  std::int64_t position = 0;  ///< of the first new token
  std::int64_t sample = 0;    ///< tokens of a whole sample, whose order of sums a host follows
};

/// What heads of queries attend to.
struct PatternOfHeads {
  const AttentionPattern& pattern;
  std::int64_t first = 0;  ///< the first of these heads, among all heads of queries of the model
};

/// Tokens of queries and keys whose scores exist at once, where no fused kernel attends to a block.
inline constexpr std::int64_t kAttentionTile = 256;

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
  /// Attends to a block. The own block writes y [B, T, heads, width] and log_sum [B, heads, T],
  /// both fp32; another one is merged into them.
  /// Source  Milakov and Gimelshein 2018 (online softmax).
  virtual void attend_block(const AttentionBlock& block, const Attended& so_far) const;
  /// Adds the gradients of a block to dq, dk, dv, all fp32. `attended`: y [B, T, heads, width] and
  /// log_sum after the last block.
  virtual void attend_block_gradient(const AttentionBlock& block, const Attended& attended,
                                     const at::Tensor& dy, const at::Tensor& dq,
                                     const at::Tensor& dk, const at::Tensor& dv) const;

  /// Attends from new tokens, q [1, T, heads, width], to all tokens of their text: keys and values
  /// [pages, heads, page_tokens, width]. Returns the output [1, T, heads * width], on a host with
  /// the bits of attend() on a whole sample.
  virtual at::Tensor attend_pages(const at::Tensor& q, const at::Tensor& keys,
                                  const at::Tensor& values, const PagedText& text) const = 0;

  // The same for a sparse pattern. The memory for scores grows with the keys of a block of queries,
  // not with the number of tokens. Bits do not depend on text.sample.
  virtual Attended attend_sparse(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const PatternOfHeads& heads) const;
  virtual void attend_sparse_gradient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const Attended& attended, const at::Tensor& dy,
                                      const at::Tensor& dq, const at::Tensor& dk,
                                      const at::Tensor& dv, const PatternOfHeads& heads) const;
  virtual at::Tensor attend_sparse_pages(const at::Tensor& q, const at::Tensor& keys,
                                         const at::Tensor& values, const PagedText& text,
                                         const PatternOfHeads& heads) const;
};

}  // namespace strata
