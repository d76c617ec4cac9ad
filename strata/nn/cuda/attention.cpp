// Libraries attend [B, heads, T, width] views with equally many heads of keys and queries, and a
// width that is a multiple of 8. Heads that share keys get copies, whose gradients are summed in
// ascending order; narrower heads get zeros at their end, which change no score.
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <limits>
#include <optional>

#include "strata/nn/cuda/arguments.h"
#include "strata/nn/cuda/cuda_primitives.h"
#include "strata/nn/primitives/pages.h"

namespace strata {
namespace {

constexpr std::int64_t kWidthUnit = 8;

std::int64_t padding_of(std::int64_t width) {
  return (width + kWidthUnit - 1) / kWidthUnit * kWidthUnit - width;
}

// [B, T, heads, width] -> [B, heads * shared, T, padded width]
at::Tensor for_library(const at::Tensor& x, std::int64_t shared) {
  STRATA_CHECK(x.stride(3) == 1, "nn.cuda_attend");
  at::Tensor heads = x.transpose(1, 2);
  if (shared > 1) {
    const std::int64_t samples = x.size(0), length = x.size(1), count = x.size(2),
                       width = x.size(3);
    heads = heads.unsqueeze(2)
                .expand({samples, count, shared, length, width})
                .reshape({samples, count * shared, length, width});
  }
  const std::int64_t padding = padding_of(x.size(3));
  return padding > 0 ? at::constant_pad_nd(heads, {0, padding}) : heads;
}

// Converts back to [B, T, heads, width] and sums the gradients of shared heads.
at::Tensor from_library(const at::Tensor& x, std::int64_t shared, std::int64_t width) {
  at::Tensor heads = x.narrow(3, 0, width);
  if (shared > 1) heads = heads.unflatten(1, {x.size(1) / shared, shared}).sum({2});
  return heads.transpose(1, 2);
}

double scale_of(std::int64_t width) { return 1 / std::sqrt(static_cast<double>(width)); }

}  // namespace

Attended CudaAttentionPrimitives::attend(const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v) const {
  const std::int64_t width = q.size(3), shared = q.size(2) / k.size(2);
  const AttentionOutput made = libraries().attend(for_library(q, 1), for_library(k, shared),
                                                  for_library(v, shared), scale_of(width));
  const at::Tensor y = from_library(made.y, 1, width);
  // Libraries lay out their output as [B, T, heads, width], so joining the heads is a view.
  STRATA_CHECK(padding_of(width) > 0 || y.is_contiguous(), "nn.cuda_attend");
  return {y.reshape({q.size(0), q.size(1), q.size(2) * width}), made.log_sum};
}

void CudaAttentionPrimitives::attend_gradient(const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const Attended& attended,
                                              const at::Tensor& dy, const at::Tensor& dq,
                                              const at::Tensor& dk, const at::Tensor& dv) const {
  const std::int64_t width = q.size(3), shared = q.size(2) / k.size(2);
  const AttentionGradients made = libraries().attend_gradient(
      for_library(dy.view(q.sizes()), 1), for_library(q, 1), for_library(k, shared),
      for_library(v, shared), {for_library(attended.y.view(q.sizes()), 1), attended.log_sum},
      scale_of(width));
  dq.copy_(from_library(made.q, 1, width));
  dk.copy_(from_library(made.k, shared, width));
  dv.copy_(from_library(made.v, shared, width));
}

// Decoding is not training: ATen chooses the kernel. New tokens after old ones need a mask, because
// the kernels count causality from the first key.
at::Tensor CudaAttentionPrimitives::attend_pages(const at::Tensor& q, const at::Tensor& keys,
                                                 const at::Tensor& values,
                                                 const PagedText& text) const {
  const std::int64_t tokens = q.size(1);
  std::optional<at::Tensor> mask;
  if (tokens > 1 && text.position > 0)
    mask = at::full({tokens, text.position + tokens}, -std::numeric_limits<double>::infinity(),
                    q.options())
               .triu_(text.position + 1);
  const at::Tensor y = at::scaled_dot_product_attention(
      q.transpose(1, 2), gathered(keys, text, tokens), gathered(values, text, tokens), mask,
      /*dropout_p=*/0.0, /*is_causal=*/tokens > 1 && !mask,
      /*scale=*/std::nullopt, /*enable_gqa=*/q.size(2) != keys.size(1));
  return y.transpose(1, 2).reshape({1, tokens, q.size(2) * q.size(3)});
}

void CudaAttentionPrimitives::rotate(const at::Tensor& x, const at::Tensor& table,
                                     RopeTurn turn) const {
  STRATA_CHECK(x.stride(3) == 1 && x.stride(2) == x.size(3), "nn.cuda_rotate");
  cuda::rotate(element_of(x), x.data_ptr(),
               {.samples = x.size(0),
                .length = x.size(1),
                .heads = x.size(2),
                .width = x.size(3),
                .sample_stride = x.stride(0),
                .token_stride = x.stride(1)},
               kernel_input<float>(table), turn == RopeTurn::kForward ? 1.0f : -1.0f, stream(x));
}

}  // namespace strata
