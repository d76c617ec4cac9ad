#include "strata/nn/ops/context_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "strata/base/errors.h"
#include "strata/nn/ops/head_exchange.h"
#include "strata/nn/ops/ring_attention.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

bool in_ring(const ContextParallel* group) { return group && group->split().in_blocks(); }

// What ranks exchange of projections, and of outputs or their gradients.
PackedHeads packed_heads(const HeadSizes& sizes) {
  return {
      .key_heads = sizes.key_heads, .width = sizes.width, .parts = {sizes.queries_per_key, 1, 1}};
}
PackedHeads packed_output(const HeadSizes& sizes) {
  return {.key_heads = sizes.key_heads, .width = sizes.width, .parts = {sizes.queries_per_key}};
}

// Whether operands differ from the rank's own heads.
bool exchanges_heads(const ContextParallel* group) {
  return group && group->size() > 1 && !in_ring(group);
}

// Attention with the operands of one rank, which has all tokens of its heads.
class WholeSamples {
 public:
  WholeSamples(const Heads& operands, const HeadSizes& sizes, const AttentionScope& scope)
      : operands_(operands),
        attention_(primitives(operands.q).attention),
        pattern_(scope.pattern),
        first_(scope.first_head) {
    if (exchanges_heads(scope.group))
      first_ += own_heads(sizes.key_heads, scope.group->rank(), scope.group->size()).first *
                sizes.queries_per_key;
  }

  Attended attend() const {
    const auto& [q, k, v] = operands_;
    return pattern_ ? attention_.attend_sparse(q, k, v, {*pattern_, first_})
                    : attention_.attend(q, k, v);
  }

  void attend_gradient(const Attended& attended, const at::Tensor& dy, const Heads& d) const {
    const auto& [q, k, v] = operands_;
    if (!pattern_) return attention_.attend_gradient(q, k, v, attended, dy, d.q, d.k, d.v);
    attention_.attend_sparse_gradient(q, k, v, attended, dy, d.q, d.k, d.v, {*pattern_, first_});
  }

 private:
  const Heads& operands_;
  const AttentionPrimitives& attention_;
  const AttentionPattern* pattern_;
  std::int64_t first_;
};

}  // namespace

at::Tensor packed_operands(const at::Tensor& packed, const HeadSizes& sizes,
                           const ContextParallel* group) {
  return exchanges_heads(group) ? tokens_to_heads(packed, packed_heads(sizes), *group) : packed;
}

Heads operands(const Heads& heads, const HeadSizes& sizes, const ContextParallel* group) {
  if (!exchanges_heads(group)) return heads;
  const at::Tensor packed =
      at::cat({heads.q.flatten(2), heads.k.flatten(2), heads.v.flatten(2)}, 2);
  return split_heads(packed_operands(packed, sizes, group), sizes);
}

Attended attend_operands(const Heads& operands, const HeadSizes& sizes,
                         const AttentionScope& scope) {
  if (in_ring(scope.group)) {
    STRATA_CHECK(!scope.pattern, "nn.attend");
    return ring_attend(operands, *scope.group);
  }
  return WholeSamples(operands, sizes, scope).attend();
}

at::Tensor own_output(const Attended& attended, const HeadSizes& sizes,
                      const ContextParallel* group) {
  if (!exchanges_heads(group)) return attended.y;
  return heads_to_tokens(attended.y, packed_output(sizes), *group);
}

void attend_operands_gradient(const Heads& operands, const Attended& attended, const at::Tensor& dy,
                              const Heads& gradients, const HeadSizes& sizes,
                              const AttentionScope& scope) {
  const at::Tensor rows = dy.contiguous();
  const ContextParallel* group = scope.group;
  if (in_ring(group)) return ring_attend_gradient(operands, attended, rows, gradients, *group);
  const WholeSamples samples(operands, sizes, scope);
  if (!exchanges_heads(group)) return samples.attend_gradient(attended, rows, gradients);
  const auto& [q, k, v] = operands;
  const at::Tensor packed =
      at::empty({q.size(0), q.size(1), (q.size(2) + 2 * k.size(2)) * sizes.width}, q.options());
  const Heads whole = split_heads(packed, sizes);
  samples.attend_gradient(attended, tokens_to_heads(rows, packed_output(sizes), *group), whole);
  const Heads own = split_heads(heads_to_tokens(packed, packed_heads(sizes), *group), sizes);
  gradients.q.copy_(own.q);
  gradients.k.copy_(own.k);
  gradients.v.copy_(own.v);
}

}  // namespace strata
