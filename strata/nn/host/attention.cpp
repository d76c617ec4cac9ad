// ATen's fused attention computes each sample and head separately, so any cut between them gives
// the same bits; heads that share keys stay together, because the gradients of their keys are
// summed.
//
// In 16 bit, if products are widened, a piece is also widened and attended in fp32: ATen's bf16
// kernel uses a product routine that reached half of fp32's rate on the tested processors.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"

namespace strata {
namespace {

// Heads of keys [first, first + count) of one sample, possibly all of them.
struct Piece {
  std::int64_t sample, first, count;
};

// Calls f(piece) for every head of every sample.
template <typename F>
void for_heads(std::int64_t samples, std::int64_t heads, F f) {
  const std::int64_t wanted = kPiecesPerThread * thread_pool().threads();
  const std::int64_t parts = std::clamp<std::int64_t>((wanted + samples - 1) / samples, 1, heads);
  thread_pool().run(samples * parts, [&](std::int64_t i) {
    const std::int64_t part = i % parts, first = heads * part / parts;
    f(Piece{i / parts, first, heads * (part + 1) / parts - first});
  });
}

// [B, T, heads, width] -> [1, heads of the piece, T, width]; `shared` heads of queries per head of
// keys.
at::Tensor cut(const at::Tensor& x, const Piece& piece, std::int64_t shared, bool widen) {
  const at::Tensor part = x.narrow(0, piece.sample, 1)
                              .narrow(2, piece.first * shared, piece.count * shared)
                              .transpose(1, 2);
  return widen ? part.to(at::kFloat) : part;
}

at::Tensor cut_sums(const at::Tensor& log_sum, const Piece& piece, std::int64_t shared) {
  return log_sum.narrow(0, piece.sample, 1).narrow(1, piece.first * shared, piece.count * shared);
}

void write(const at::Tensor& to, const Piece& piece, std::int64_t shared, const at::Tensor& from) {
  at::Tensor part = cut(to, piece, shared, false);
  part.copy_(from);
}

// 0 if token i, at `position` + i, may attend to position j; otherwise -infinity.
at::Tensor causal_mask(std::int64_t tokens, std::int64_t position, const at::Tensor& like) {
  const at::Tensor mask = at::full({tokens, position + tokens},
                                   -std::numeric_limits<double>::infinity(), like.options());
  return mask.triu_(position + 1);
}

}  // namespace

Attended HostAttentionPrimitives::attend(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v) const {
  const std::int64_t samples = q.size(0), length = q.size(1), heads = q.size(2), width = q.size(3);
  const std::int64_t shared = heads / k.size(2);
  const bool widen = widens_products(q.scalar_type());
  if (!widen && thread_pool().threads() == 1) {
    const auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), /*dropout_p=*/0.0,
        /*is_causal=*/true);
    // The kernel lays out its output as [B, T, heads, width], so joining the heads is a view.
    return {out.transpose(1, 2).reshape({samples, length, heads * width}), log_sum};
  }
  const at::Tensor y = at::empty({samples, length, heads, width}, q.options());
  const at::Tensor log_sum =
      at::empty({samples, length, heads}, q.options().dtype(at::kFloat)).transpose(1, 2);
  for_heads(samples, k.size(2), [&](const Piece& piece) {
    const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        cut(q, piece, shared, widen), cut(k, piece, 1, widen), cut(v, piece, 1, widen),
        /*dropout_p=*/0.0, /*is_causal=*/true);
    write(y, piece, shared, out);
    cut_sums(log_sum, piece, shared).copy_(sums);
  });
  return {y.view({samples, length, heads * width}), log_sum};
}

void HostAttentionPrimitives::attend_gradient(const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const Attended& attended,
                                              const at::Tensor& dy, const at::Tensor& dq,
                                              const at::Tensor& dk, const at::Tensor& dv) const {
  const std::int64_t shared = q.size(2) / k.size(2);
  const bool widen = widens_products(q.scalar_type());
  const at::Tensor y = attended.y.view(q.sizes()), gradient = dy.view(q.sizes());
  for_heads(q.size(0), k.size(2), [&](const Piece& piece) {
    const auto [dq_part, dk_part, dv_part] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            cut(gradient, piece, shared, widen), cut(q, piece, shared, widen),
            cut(k, piece, 1, widen), cut(v, piece, 1, widen), cut(y, piece, shared, widen),
            cut_sums(attended.log_sum, piece, shared), /*dropout_p=*/0.0, /*is_causal=*/true);
    write(dq, piece, shared, dq_part);
    write(dk, piece, 1, dk_part);
    write(dv, piece, 1, dv_part);
  });
}

// One new token attends to every position, so ATen's kernel runs without a mask. The first tokens
// of a text are causal from the start. New tokens after old ones need a mask, because the kernel
// counts causality from the first key.
at::Tensor HostAttentionPrimitives::attend_last(const at::Tensor& q, const at::Tensor& keys,
                                                const at::Tensor& values) const {
  const std::int64_t samples = q.size(0), tokens = q.size(1), position = keys.size(2) - tokens;
  std::optional<at::Tensor> mask;
  if (tokens > 1 && position > 0) mask = causal_mask(tokens, position, q);
  const at::Tensor y = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      q.transpose(1, 2), keys, values, /*dropout_p=*/0.0, /*is_causal=*/tokens > 1 && !mask, mask));
  return y.transpose(1, 2).reshape({samples, tokens, q.size(2) * q.size(3)});
}

void HostAttentionPrimitives::rotate(const at::Tensor& x, const at::Tensor& table,
                                     RopeTurn turn) const {
  const std::int64_t length = x.size(1), heads = x.size(2), width = x.size(3);
  const std::int64_t sample = x.stride(0), token = x.stride(1);
  const float* angles = table.const_data_ptr<float>();
  const float direction = turn == RopeTurn::kForward ? 1.0f : -1.0f;
  parallel_rows(x.size(0) * length, heads * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* at = angles + row % length * width;
      kernels::rotate(element_of(x),
                      mutable_at_element(x, row / length * sample + row % length * token), at,
                      at + width / 2, heads, width, direction);
    }
  });
}

}  // namespace strata
