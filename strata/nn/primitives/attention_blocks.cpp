// A block's attention by its formula, on any device. The scores of kAttentionTile tokens exist as a
// whole, so a block is computed in tiles; a fused kernel of the device may take this one's place.
#include <ATen/ops/exp.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/nn/aten/aten_scope.h"
#include "strata/nn/primitives/attention.h"

namespace strata {
namespace {

// [B, T, heads, width] -> [B, heads * shared, T, width] in fp32
at::Tensor heads_first(const at::Tensor& x, std::int64_t shared = 1) {
  const at::Tensor heads = as_float(x).transpose(1, 2);
  return shared == 1 ? heads : heads.repeat_interleave(shared, 1);
}

double scale_of_scores(const AttentionBlock& block) {
  return 1 / std::sqrt(static_cast<double>(block.q.size(3)));
}

// [B, heads, T, T]
at::Tensor scores_of(const AttentionBlock& block, std::int64_t shared) {
  at::Tensor scores =
      at::matmul(heads_first(block.q), heads_first(block.k, shared).transpose(2, 3));
  scores.mul_(scale_of_scores(block));
  if (!block.own) return scores;
  const at::Tensor later =
      at::ones({scores.size(2), scores.size(3)}, scores.options().dtype(at::kBool)).triu_(1);
  return scores.masked_fill_(later, -std::numeric_limits<float>::infinity());
}

// Sums over the heads that share keys, and lays out by tokens.
at::Tensor tokens_first(const at::Tensor& x, std::int64_t shared) {
  const at::Tensor sum = shared == 1 ? x : x.unflatten(1, {-1, shared}).sum({2});
  return sum.transpose(1, 2);
}

// Calls f(tile, first query) for the tiles of a block: the own one of each tile of queries first,
// then those before it in descending order.
template <typename F>
void for_tiles(const AttentionBlock& block, F f) {
  const std::int64_t length = block.q.size(1);
  const auto rows = [&](const at::Tensor& x, std::int64_t first) {
    return x.narrow(1, first, std::min(kAttentionTile, length - first));
  };
  const std::int64_t last = (length - 1) / kAttentionTile * kAttentionTile;
  for (std::int64_t query = 0; query < length; query += kAttentionTile)
    for (std::int64_t key = block.own ? query : last; key >= 0; key -= kAttentionTile)
      f(AttentionBlock{.q = rows(block.q, query),
                       .k = rows(block.k, key),
                       .v = rows(block.v, key),
                       .own = block.own && key == query},
        query, key);
}

void attend_tile(const AttentionBlock& block, const Attended& so_far) {
  const std::int64_t shared = block.q.size(2) / block.k.size(2);
  const at::Tensor scores = scores_of(block, shared);
  const at::Tensor sums = scores.logsumexp({3});
  const at::Tensor out =
      at::matmul((scores - sums.unsqueeze(3)).exp_(), heads_first(block.v, shared));
  const at::Tensor y = so_far.y.transpose(1, 2);
  if (block.own) {
    y.copy_(out);
    so_far.log_sum.copy_(sums);
    return;
  }
  const at::Tensor all = at::logaddexp(so_far.log_sum, sums);
  y.mul_((so_far.log_sum - all).exp_().unsqueeze(3));
  y.add_(out * (sums - all).exp_().unsqueeze(3));
  so_far.log_sum.copy_(all);
}

void attend_tile_gradient(const AttentionBlock& block, const Attended& attended,
                          const at::Tensor& dy, const at::Tensor& dq, const at::Tensor& dk,
                          const at::Tensor& dv) {
  const std::int64_t shared = block.q.size(2) / block.k.size(2);
  const at::Tensor weights = (scores_of(block, shared) - attended.log_sum.unsqueeze(3)).exp_();
  const at::Tensor gradient = heads_first(dy), values = heads_first(block.v, shared);
  const at::Tensor sums = (gradient * heads_first(attended.y)).sum({3}, /*keepdim=*/true);
  const at::Tensor of_scores =
      weights * (at::matmul(gradient, values.transpose(2, 3)) - sums) * scale_of_scores(block);
  dv.add_(tokens_first(at::matmul(weights.transpose(2, 3), gradient), shared));
  dq.add_(tokens_first(at::matmul(of_scores, heads_first(block.k, shared)), 1));
  dk.add_(tokens_first(at::matmul(of_scores.transpose(2, 3), heads_first(block.q)), shared));
}

}  // namespace

void AttentionPrimitives::attend_block(const AttentionBlock& block, const Attended& so_far) const {
  const AtenScope scope;
  for_tiles(block, [&](const AttentionBlock& tile, std::int64_t query, std::int64_t) {
    const std::int64_t rows = tile.q.size(1);
    attend_tile(tile, {so_far.y.narrow(1, query, rows), so_far.log_sum.narrow(2, query, rows)});
  });
}

void AttentionPrimitives::attend_block_gradient(const AttentionBlock& block,
                                                const Attended& attended, const at::Tensor& dy,
                                                const at::Tensor& dq, const at::Tensor& dk,
                                                const at::Tensor& dv) const {
  const AtenScope scope;
  for_tiles(block, [&](const AttentionBlock& tile, std::int64_t query, std::int64_t key) {
    const std::int64_t rows = tile.q.size(1), keys = tile.k.size(1);
    attend_tile_gradient(
        tile, {attended.y.narrow(1, query, rows), attended.log_sum.narrow(2, query, rows)},
        dy.narrow(1, query, rows), dq.narrow(1, query, rows), dk.narrow(1, key, keys),
        dv.narrow(1, key, keys));
  });
}

}  // namespace strata
