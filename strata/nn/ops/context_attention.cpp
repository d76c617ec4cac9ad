#include "strata/nn/ops/context_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

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

Attended attend_operands(const Heads& operands, const ContextParallel* group) {
  if (in_ring(group)) return ring_attend(operands, *group);
  return primitives(operands.q).attention.attend(operands.q, operands.k, operands.v);
}

at::Tensor own_output(const Attended& attended, const HeadSizes& sizes,
                      const ContextParallel* group) {
  if (!exchanges_heads(group)) return attended.y;
  return heads_to_tokens(attended.y, packed_output(sizes), *group);
}

void attend_operands_gradient(const Heads& operands, const Attended& attended, const at::Tensor& dy,
                              const Heads& gradients, const HeadSizes& sizes,
                              const ContextParallel* group) {
  const at::Tensor rows = dy.contiguous();
  if (in_ring(group)) return ring_attend_gradient(operands, attended, rows, gradients, *group);
  const auto& [q, k, v] = operands;
  const AttentionPrimitives& attention = primitives(q).attention;
  if (!exchanges_heads(group))
    return attention.attend_gradient(q, k, v, attended, rows, gradients.q, gradients.k,
                                     gradients.v);
  const at::Tensor packed =
      at::empty({q.size(0), q.size(1), (q.size(2) + 2 * k.size(2)) * sizes.width}, q.options());
  const Heads whole = split_heads(packed, sizes);
  attention.attend_gradient(q, k, v, attended, tokens_to_heads(rows, packed_output(sizes), *group),
                            whole.q, whole.k, whole.v);
  const Heads own = split_heads(heads_to_tokens(packed, packed_heads(sizes), *group), sizes);
  gradients.q.copy_(own.q);
  gradients.k.copy_(own.k);
  gradients.v.copy_(own.v);
}

}  // namespace strata
