// Attention to the blocks of a pattern by its formula, on any device; a fused kernel of the device
// may take this one's place. The scores of a block of queries exist as a whole.
//
// Heads of a group have one form of the pattern and no head of keys in common, so each key gets one
// sum at a time and the order of sums is fixed.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "strata/device/device.h"
#include "strata/nn/aten/aten_scope.h"
#include "strata/nn/primitives/attention.h"

namespace strata {
namespace {

struct HeadGroup {
  std::int64_t form;
  at::Tensor queries, keys;  // indices of heads
};

// Heads of one form that are at one place among those that share keys: every so-many-th head.
std::vector<HeadGroup> groups_of(const PatternOfHeads& heads, std::int64_t count,
                                 std::int64_t shared, c10::Device device) {
  const std::int64_t step = std::lcm(heads.pattern.forms, shared);
  const at::TensorOptions options = at::TensorOptions().dtype(at::kLong).device(device);
  std::vector<HeadGroup> groups;
  for (std::int64_t first = 0; first < std::min(step, count); ++first) {
    const at::Tensor queries = at::arange(first, count, step, options);
    groups.push_back({heads.pattern.form(heads.first + first), queries,
                      queries.div(shared, /*rounding_mode=*/"floor")});
  }
  return groups;
}

// A block of queries and the keys of its blocks.
struct KeysOfQueries {
  std::int64_t first, rows;  // tokens of the queries
  at::Tensor keys;           // [n]: tokens
  at::Tensor hidden;         // [rows, n]: pairs that do not attend
};

// Queries [first, end) of one block of a text of `tokens` tokens.
KeysOfQueries keys_of(const AttentionPattern& pattern, std::int64_t form, std::int64_t first,
                      std::int64_t end, std::int64_t tokens, c10::Device device) {
  std::vector<std::int32_t> blocks;
  pattern.key_blocks(form, first / pattern.block, blocks);
  const at::TensorOptions options = at::TensorOptions().dtype(at::kLong).device(device);
  std::vector<at::Tensor> parts;
  for (const std::int32_t block : blocks)
    parts.push_back(
        at::arange(block * pattern.block, std::min((block + 1) * pattern.block, tokens), options));
  KeysOfQueries all{first, end - first, at::cat(parts), {}};
  const at::Tensor queries = at::arange(first, end, options).unsqueeze(1);
  all.hidden = all.keys.unsqueeze(0) > queries;
  if (const std::int64_t window = pattern.exact_window(); window > 0)
    all.hidden = all.hidden.logical_or(all.keys.unsqueeze(0) <= queries - window);
  return all;
}

// [B, n, heads, width] -> [B, heads of the group, n, width] in fp32
at::Tensor heads_first(const at::Tensor& x, const at::Tensor& heads) {
  return as_float(x.index_select(2, heads)).transpose(1, 2);
}

double scale_of(const at::Tensor& q) { return 1 / std::sqrt(static_cast<double>(q.size(3))); }

at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const KeysOfQueries& all) {
  return at::matmul(q, k.transpose(2, 3))
      .mul_(scale_of(q))
      .masked_fill_(all.hidden, -std::numeric_limits<float>::infinity());
}

// Calls f(group, keys of queries) for the blocks of queries of the tokens [first, end).
template <typename F>
void for_query_blocks(const PatternOfHeads& heads, const std::vector<HeadGroup>& groups,
                      std::int64_t first, std::int64_t end, c10::Device device, F f) {
  const std::int64_t block = heads.pattern.block;
  for (const HeadGroup& group : groups)
    for (std::int64_t at = first; at < end; at = (at / block + 1) * block)
      f(group, keys_of(heads.pattern, group.form, at, std::min(end, (at / block + 1) * block), end,
                       device));
}

// Writes the output of the queries, rows of y, and returns the logarithms of sums.
at::Tensor attend_queries(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const HeadGroup& group, const KeysOfQueries& all, const at::Tensor& y) {
  const at::Tensor scores =
      scores_of(heads_first(q, group.queries), heads_first(k, group.keys), all);
  const at::Tensor sums = scores.logsumexp({3});
  const at::Tensor out =
      at::matmul((scores - sums.unsqueeze(3)).exp_(), heads_first(v, group.keys));
  at::Tensor rows = y;
  rows.index_copy_(2, group.queries, out.transpose(1, 2).to(y.scalar_type()));
  return sums;
}

}  // namespace

Attended AttentionPrimitives::attend_sparse(const at::Tensor& q, const at::Tensor& k,
                                            const at::Tensor& v,
                                            const PatternOfHeads& heads) const {
  const std::int64_t length = q.size(1), count = q.size(2);
  const at::Tensor y = at::empty(q.sizes(), q.options());
  at::Tensor log_sum = at::empty({q.size(0), count, length}, q.options().dtype(at::kFloat));
  const AtenScope scope;
  const auto groups = groups_of(heads, count, count / k.size(2), q.device());
  for_query_blocks(heads, groups, 0, length, q.device(),
                   [&](const HeadGroup& group, const KeysOfQueries& all) {
                     const at::Tensor sums = attend_queries(
                         q.narrow(1, all.first, all.rows), k.index_select(1, all.keys),
                         v.index_select(1, all.keys), group, all, y.narrow(1, all.first, all.rows));
                     log_sum.narrow(2, all.first, all.rows).index_copy_(1, group.queries, sums);
                   });
  return {y.view({q.size(0), length, count * q.size(3)}), log_sum};
}

void AttentionPrimitives::attend_sparse_gradient(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, const Attended& attended,
                                                 const at::Tensor& dy, const at::Tensor& dq,
                                                 const at::Tensor& dk, const at::Tensor& dv,
                                                 const PatternOfHeads& heads) const {
  const AtenScope scope;
  const auto groups = groups_of(heads, q.size(2), q.size(2) / k.size(2), q.device());
  const auto sum_of = [](const at::Tensor& x) {
    return at::zeros(x.sizes(), x.options().dtype(at::kFloat));
  };
  at::Tensor dq_sum = sum_of(q), dk_sum = sum_of(k), dv_sum = sum_of(v);
  const at::Tensor y = attended.y.view(q.sizes()), gradient = dy.view(q.sizes());
  for_query_blocks(
      heads, groups, 0, q.size(1), q.device(),
      [&](const HeadGroup& group, const KeysOfQueries& all) {
        const auto rows = [&](const at::Tensor& x) { return x.narrow(1, all.first, all.rows); };
        const auto queries = [&](const at::Tensor& x) {
          return heads_first(rows(x), group.queries);
        };
        const auto keys = [&](const at::Tensor& x) {
          return heads_first(x.index_select(1, all.keys), group.keys);
        };
        const at::Tensor sums =
            attended.log_sum.narrow(2, all.first, all.rows).index_select(1, group.queries);
        const at::Tensor q_rows = queries(q), k_rows = keys(k), of_y = queries(gradient);
        const at::Tensor shares = (scores_of(q_rows, k_rows, all) - sums.unsqueeze(3)).exp_();
        const at::Tensor along = (of_y * queries(y)).sum({3}, /*keepdim=*/true);
        const at::Tensor of_scores =
            shares * (at::matmul(of_y, keys(v).transpose(2, 3)) - along) * scale_of(q);
        rows(dq_sum).index_add_(2, group.queries, at::matmul(of_scores, k_rows).transpose(1, 2));
        const auto add = [&](const at::Tensor& sum, const at::Tensor& part) {
          at::Tensor whole =
              at::zeros({sum.size(0), all.keys.size(0), sum.size(2), sum.size(3)}, sum.options());
          whole.index_copy_(2, group.keys, part.transpose(1, 2));
          at::Tensor(sum).index_add_(1, all.keys, whole);
        };
        add(dk_sum, at::matmul(of_scores.transpose(2, 3), q_rows));
        add(dv_sum, at::matmul(shares.transpose(2, 3), of_y));
      });
  dq.copy_(dq_sum);
  dk.copy_(dk_sum);
  dv.copy_(dv_sum);
}

at::Tensor AttentionPrimitives::attend_sparse_pages(const at::Tensor& q, const at::Tensor& keys,
                                                    const at::Tensor& values, const PagedText& text,
                                                    const PatternOfHeads& heads) const {
  const std::int64_t tokens = q.size(1), count = q.size(2), page_tokens = keys.size(2);
  const at::Tensor y = at::empty(q.sizes(), q.options());
  const AtenScope scope;
  const at::Tensor pages =
      at::tensor(std::vector<std::int64_t>(text.pages.begin(), text.pages.end()),
                 host_options(at::kLong))
          .to(q.device());
  const auto selected = [&](const at::Tensor& pool, const at::Tensor& tokens_of_text) {
    const at::Tensor page =
        pages.index_select(0, tokens_of_text.div(page_tokens, /*rounding_mode=*/"floor"));
    return at::index(pool, {page, std::nullopt, tokens_of_text.remainder(page_tokens)})
        .unsqueeze(0);
  };
  for_query_blocks(heads, groups_of(heads, count, count / keys.size(1), q.device()), text.position,
                   text.position + tokens, q.device(),
                   [&](const HeadGroup& group, const KeysOfQueries& all) {
                     const auto rows = [&](const at::Tensor& x) {
                       return x.narrow(1, all.first - text.position, all.rows);
                     };
                     attend_queries(rows(q), selected(keys, all.keys), selected(values, all.keys),
                                    group, all, rows(y));
                   });
  return y.view({1, tokens, count * q.size(3)});
}

}  // namespace strata
