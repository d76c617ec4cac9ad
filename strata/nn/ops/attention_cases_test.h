/// Runs attention on ranks that divide the tokens of samples, and by its formula, for tests.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "strata/comm/context_group.h"
#include "strata/comm/ranks.h"
#include "strata/nn/ops/attention.h"

namespace strata {

struct AttentionCase {
  std::int64_t samples = 2, length = 64, key_heads = 2, shared = 2, width = 16;
  at::ScalarType dtype = at::kFloat;
  bool rope = false, norms = false;
  const AttentionPattern* pattern = nullptr;
  std::int64_t columns() const { return (shared + 2) * key_heads * width; }
};

struct AttentionResult {
  at::Tensor y, dx;  // [B, T, ...]
  at::Tensor gains;  // [2, width]: gradients, summed over ranks
};

struct AttentionData {
  at::Tensor qkv, dy, gains;
};

inline AttentionData random_attention(const AttentionCase& s, int seed) {
  at::manual_seed(seed);
  return {at::randn({s.samples, s.length, s.columns()}).to(s.dtype),
          at::randn({s.samples, s.length, s.shared * s.key_heads * s.width}).to(s.dtype),
          at::randn({2, s.width})};
}

inline Attention attention_of(const AttentionCase& s, const at::Tensor& gains) {
  Attention o{.head_width = s.width, .queries_per_key = s.shared, .pattern = s.pattern};
  if (s.rope) o.rope = RopeOptions{};
  if (!s.norms) return o;
  const auto leaf = [&](int i) {
    at::Tensor gain = gains[i].to(s.dtype).clone().requires_grad_(true);
    gain.mutable_grad() = at::zeros({s.width});
    return gain;
  };
  o.query_gain = leaf(0);
  o.key_gain = leaf(1);
  return o;
}

inline at::Tensor tokens_of_rank(const at::Tensor& x, const ContextSplit& split, int rank) {
  std::vector<at::Tensor> parts;
  for (const TokenRange& range : own_tokens(split, rank, x.size(1)))
    parts.push_back(x.narrow(1, range.first, range.count));
  return at::cat(parts, 1).contiguous();
}

// Attention of the shape on split.ranks thread ranks. Without ranks and blocks: of whole samples.
inline AttentionResult run_attention(const AttentionCase& s, const AttentionData& data,
                                     const ContextSplit& split, int threads = 1) {
  AttentionResult result{.y = at::zeros_like(data.dy),
                         .dx = at::zeros_like(data.qkv),
                         .gains = at::zeros({2, s.width})};
  std::mutex mutex;
  run_thread_ranks(
      {.ranks = split.ranks, .threads_per_rank = threads}, [&](Group& world, MemoryAccount&) {
        const ContextGroup group(world, split);
        ForwardContext context{.training = true};
        if (split.divides()) context.context_parallel = &group;
        const Attention o = attention_of(s, data.gains);
        const at::Tensor x = tokens_of_rank(data.qkv, split, world.rank()).requires_grad_(true);
        // Without norms attend() turns its input in place, which a leaf does not allow.
        const at::Tensor y = attend(x * 1, o, context);
        y.backward(tokens_of_rank(data.dy, split, world.rank()));
        const std::scoped_lock lock(mutex);
        std::int64_t row = 0;
        for (const TokenRange& range : own_tokens(split, world.rank(), s.length)) {
          const auto put = [&](const at::Tensor& whole, const at::Tensor& part) {
            whole.narrow(1, range.first, range.count).copy_(part.narrow(1, row, range.count));
          };
          put(result.y, y.detach());
          put(result.dx, x.grad());
          row += range.count;
        }
        if (!s.norms) return;
        result.gains[0].add_(o.query_gain.grad());
        result.gains[1].add_(o.key_gain.grad());
      });
  return result;
}

// By formula, in fp64, without any code of ours. Heads that share keys are neighbours. `hidden`,
// [T, T] or [heads, T, T]: pairs of query and key that do not attend.
inline AttentionResult attention_by_formula(const AttentionCase& s, const AttentionData& data,
                                            const at::Tensor& hidden) {
  const at::Tensor x = data.qkv.to(at::kDouble).requires_grad_(true);
  const auto heads = [&](std::int64_t first, std::int64_t count) {
    return x.narrow(2, first * s.width, count * s.width)
        .reshape({s.samples, s.length, count, s.width})
        .transpose(1, 2);
  };
  const std::int64_t queries = s.shared * s.key_heads;
  const at::Tensor q = heads(0, queries);
  const at::Tensor k = heads(queries, s.key_heads).repeat_interleave(s.shared, 1);
  const at::Tensor v = heads(queries + s.key_heads, s.key_heads).repeat_interleave(s.shared, 1);
  const at::Tensor scores =
      (at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(s.width)))
          .masked_fill(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor y = at::matmul(scores.softmax(-1), v).transpose(1, 2).flatten(2);
  y.backward(data.dy.to(at::kDouble));
  return {.y = y.detach(), .dx = x.grad()};
}

inline AttentionResult attention_by_formula(const AttentionCase& s, const AttentionData& data) {
  return attention_by_formula(s, data, at::ones({s.length, s.length}, at::kBool).triu(1));
}

inline void expect_close(const at::Tensor& ours, const at::Tensor& theirs, double tolerance) {
  ASSERT_TRUE(ours.isfinite().all().item<bool>());
  const at::Tensor difference = (ours.to(at::kDouble) - theirs.to(at::kDouble)).abs();
  const double scale = std::max(1.0, theirs.abs().max().item<double>());
  EXPECT_LE(difference.max().item<double>() / scale, tolerance);
}

inline void expect_same_bits(const AttentionResult& a, const AttentionResult& b) {
  EXPECT_TRUE(a.y.equal(b.y));
  EXPECT_TRUE(a.dx.equal(b.dx));
}

inline constexpr double kTolerance = 1e-5;

}  // namespace strata
