// ATen's fused attention computes each sample and head separately, so any cut between them gives
// the same bits; heads that share keys stay together, because the gradients of their keys are
// summed.
//
// In 16 bit, if products are widened, a piece is also widened and attended in fp32: ATen's bf16
// kernel uses a product routine that reached half of fp32's rate on the tested processors.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "strata/device/parallel.h"
#include "strata/nn/host/elements.h"
#include "strata/nn/host/few_rows.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/kernels/decoding.h"

namespace strata {
namespace {

// Heads of keys [first, first + count) of one sample, possibly all of them.
struct Piece {
  std::int64_t sample, first, count;
  std::int64_t samples = 1;
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

// The same for a block of attention, whose products are small: one call for all if the thread works
// alone and nothing is widened.
template <typename F>
void for_heads_of_block(const AttentionBlock& block, bool widen, F f) {
  const std::int64_t samples = block.q.size(0), heads = block.k.size(2);
  if (widen || thread_pool().threads() > 1) return for_heads(samples, heads, f);
  f(Piece{0, 0, heads, samples});
}

// [B, T, heads, width] -> [samples of the piece, its heads, T, width]; `shared` heads of queries
// per head of keys.
at::Tensor cut(const at::Tensor& x, const Piece& piece, std::int64_t shared, bool widen) {
  const at::Tensor part = x.narrow(0, piece.sample, piece.samples)
                              .narrow(2, piece.first * shared, piece.count * shared)
                              .transpose(1, 2);
  return widen ? part.to(at::kFloat) : part;
}

at::Tensor cut_sums(const at::Tensor& log_sum, const Piece& piece, std::int64_t shared) {
  return log_sum.narrow(0, piece.sample, piece.samples)
      .narrow(1, piece.first * shared, piece.count * shared);
}

void write(const at::Tensor& to, const Piece& piece, std::int64_t shared, const at::Tensor& from) {
  at::Tensor part = cut(to, piece, shared, false);
  part.copy_(from);
}

// With fewer rows of queries, products use routines that add up in another order.
constexpr std::int64_t kLeastQueries = 4;

// [heads of the piece, positions, width] of a text's pages, then zeros up to `length` positions.
at::Tensor collected(const at::Tensor& pool, std::span<const std::int32_t> pages,
                     std::int64_t positions, std::int64_t length, const Piece& piece, bool widen) {
  const std::int64_t page_tokens = pool.size(2);
  at::Tensor all = at::empty({piece.count, length, pool.size(3)},
                             pool.options().dtype(widen ? at::kFloat : pool.scalar_type()));
  for (std::int64_t at = 0; at < positions; at += page_tokens) {
    const std::int64_t count = std::min(page_tokens, positions - at);
    all.narrow(1, at, count)
        .copy_(pool.select(0, pages[at / page_tokens])
                   .narrow(0, piece.first, piece.count)
                   .narrow(1, 0, count));
  }
  all.narrow(1, positions, length - positions).zero_();
  return all;
}

// 0 where row i of queries, at `position` + i, may attend to a key; otherwise -infinity.
at::Tensor causal_mask(std::int64_t rows, std::int64_t position, std::int64_t keys,
                       const at::TensorOptions& options) {
  return at::full({rows, keys}, -std::numeric_limits<double>::infinity(), options)
      .triu_(position + 1);
}

at::Tensor attend_in_order(const at::Tensor& q, const at::Tensor& keys, const at::Tensor& values,
                           const PagedText& text) {
  const std::int64_t tokens = q.size(1), heads = q.size(2), width = q.size(3);
  const std::int64_t key_heads = keys.size(1), shared = heads / key_heads;
  const at::Tensor queries = widened(q.contiguous());
  const at::Tensor y = at::empty({1, tokens, heads * width}, queries.options());
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
  // By heads, then tokens.
  const std::int64_t keys_seen = text.position + (tokens + 1) / 2;
  parallel_rows(key_heads * tokens, shared * keys_seen * width,
                [&](std::int64_t i, std::int64_t end) {
                  for (; i < end; ++i) {
                    const std::int64_t head = i / tokens, token = i % tokens;
                    const std::int64_t in_page = head * keys.size(2) * width;
                    const std::int64_t at = (token * heads + head * shared) * width;
                    kernels::attend_few(
                        {queries.const_data_ptr<float>() + at, shared, scale, exponent_lanes()},
                        {.element = element_of(keys),
                         .keys = at_element(keys, in_page),
                         .values = at_element(values, in_page),
                         .page_stride = key_heads * keys.size(2) * width,
                         .pages = text.pages,
                         .page_tokens = keys.size(2),
                         .width = width},
                        text.position + token + 1, text.sample, y.data_ptr<float>() + at);
                  }
                });
  return y.to(q.scalar_type());
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

namespace {

// The own block begins a sum; another one scales it to the new largest score. y, made [samples,
// heads, T, width], log_sum and made_sum [samples, heads, T].
void merge_rows(const at::Tensor& y, const at::Tensor& log_sum, const at::Tensor& made,
                const at::Tensor& made_sum) {
  const std::int64_t heads = y.size(1), length = y.size(2), width = y.size(3);
  for (std::int64_t i = 0; i < y.size(0) * heads * length; ++i) {
    const std::int64_t sample = i / (heads * length), head = i / length % heads, row = i % length;
    const auto at = [&](const at::Tensor& x) {
      return sample * x.stride(0) + head * x.stride(1) + row * x.stride(2);
    };
    float& before = log_sum.data_ptr<float>()[at(log_sum)];
    const float block = made_sum.const_data_ptr<float>()[at(made_sum)];
    const float top = std::max(before, block);
    const float sum = top + std::log(std::exp(before - top) + std::exp(block - top));
    const float scale = std::exp(before - sum), share = std::exp(block - sum);
    float* to = y.data_ptr<float>() + at(y);
    const float* from = made.const_data_ptr<float>() + at(made);
    for (std::int64_t j = 0; j < width; ++j) to[j] = to[j] * scale + from[j] * share;
    before = sum;
  }
}

}  // namespace

void HostAttentionPrimitives::attend_block(const AttentionBlock& block,
                                           const Attended& so_far) const {
  const std::int64_t shared = block.q.size(2) / block.k.size(2);
  const bool widen = widens_products(block.q.scalar_type());
  for_heads_of_block(block, widen, [&](const Piece& piece) {
    const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        cut(block.q, piece, shared, widen), cut(block.k, piece, 1, widen),
        cut(block.v, piece, 1, widen), /*dropout_p=*/0.0, /*is_causal=*/block.own);
    const at::Tensor y = cut(so_far.y, piece, shared, false);
    const at::Tensor log_sum = cut_sums(so_far.log_sum, piece, shared);
    if (block.own) {
      y.copy_(out);
      log_sum.copy_(sums);
    } else {
      merge_rows(y, log_sum, out.to(at::kFloat), sums.to(at::kFloat));
    }
  });
}

void HostAttentionPrimitives::attend_block_gradient(const AttentionBlock& block,
                                                    const Attended& attended, const at::Tensor& dy,
                                                    const at::Tensor& dq, const at::Tensor& dk,
                                                    const at::Tensor& dv) const {
  const std::int64_t shared = block.q.size(2) / block.k.size(2);
  const bool widen = widens_products(block.q.scalar_type());
  for_heads_of_block(block, widen, [&](const Piece& piece) {
    const auto [dq_part, dk_part, dv_part] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            cut(dy, piece, shared, widen), cut(block.q, piece, shared, widen),
            cut(block.k, piece, 1, widen), cut(block.v, piece, 1, widen),
            cut(attended.y, piece, shared, widen), cut_sums(attended.log_sum, piece, shared),
            /*dropout_p=*/0.0, /*is_causal=*/block.own);
    cut(dq, piece, shared, false).add_(dq_part);
    cut(dk, piece, 1, false).add_(dk_part);
    cut(dv, piece, 1, false).add_(dv_part);
  });
}

// Has the bits of attend() on a sample of text.sample tokens: that kernel computes products of
// whole blocks of keys and masks the later ones, and has at least four rows of queries. So the keys
// go up to a block's end, zeros after the text, and queries are followed by copies of the last one
// up to a multiple of four: the kernel takes 32, 64 or 256 at a time, and the rest must not be
// fewer. If products have few columns, their order depends on the rows, and four are attended at a
// time. Few queries, and those that begin a text, are attended by a kernel of the same order, which
// reads the pages in place, where that kernel's bits do not differ (few_rows.h).
//
// The last one to three queries of a sample may differ if training's kernel has so few left over.
at::Tensor HostAttentionPrimitives::attend_pages(const at::Tensor& q, const at::Tensor& keys,
                                                 const at::Tensor& values,
                                                 const PagedText& text) const {
  const std::int64_t tokens = q.size(1), heads = q.size(2), width = q.size(3);
  const std::int64_t shared = heads / keys.size(1), seen = text.position + tokens;
  const std::int64_t length = std::min(
      (seen + kernels::kKeyBlock - 1) / kernels::kKeyBlock * kernels::kKeyBlock, text.sample);
  const bool widen = widens_products(q.scalar_type());
  // The kernel takes longer for a key, but reads only those before each token.
  const bool few = tokens < kLeastQueries || 2 * text.position + tokens < length / 2;
  if (few && (widen || q.scalar_type() == at::kFloat) && few_queries_hold(width, text.sample))
    return attend_in_order(q, keys, values, text);
  if (tokens > kLeastQueries && has_few_columns(width, text.sample)) {
    std::vector<at::Tensor> parts;
    for (std::int64_t begin = 0; begin < tokens; begin += kLeastQueries)
      parts.push_back(attend_pages(
          q.narrow(1, begin, std::min(kLeastQueries, tokens - begin)), keys, values,
          {.pages = text.pages, .position = text.position + begin, .sample = text.sample}));
    return at::cat(parts, 1);
  }
  const std::int64_t rows = (tokens + kLeastQueries - 1) / kLeastQueries * kLeastQueries;
  const at::Tensor y = at::empty({1, tokens, heads, width}, q.options());
  const at::Tensor mask =
      causal_mask(rows, text.position, length, widen ? q.options().dtype(at::kFloat) : q.options());
  if (rows > tokens)
    mask.narrow(0, tokens, rows - tokens)
        .copy_(mask.narrow(0, tokens - 1, 1).expand({rows - tokens, length}));
  for_heads(1, keys.size(1), [&](const Piece& piece) {
    at::Tensor queries = cut(q, piece, shared, widen);
    if (rows > tokens)
      queries = at::cat(
          {queries,
           queries.narrow(2, tokens - 1, 1).expand({1, queries.size(1), rows - tokens, width})},
          2);
    const auto all = [&](const at::Tensor& pool) {
      return collected(pool, text.pages, seen, length, piece, widen).unsqueeze(0);
    };
    const at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        queries, all(keys), all(values), /*dropout_p=*/0.0, /*is_causal=*/false, mask));
    write(y, piece, shared, out.narrow(2, 0, tokens));
  });
  return y.view({1, tokens, heads * width});
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
