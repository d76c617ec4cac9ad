#include "strata/nn/ops/grouped_attention.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/rms_norm.h"
#include "strata/nn/ops/rope.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// Queries, keys, values as [B, T, heads, width], views of the packed tensor.
struct Parts {
  at::Tensor q, k, v;
};

Parts parts(const at::Tensor& qkv, const GroupedAttention& o) {
  const std::int64_t kv_heads = qkv.size(2) / o.head_width / (o.queries_per_key + 2);
  const std::int64_t q_width = kv_heads * o.queries_per_key * o.head_width;
  const std::int64_t kv_width = kv_heads * o.head_width;
  const auto cut = [&](std::int64_t begin, std::int64_t width) {
    return qkv.narrow(2, begin, width)
        .view({qkv.size(0), qkv.size(1), width / o.head_width, o.head_width});
  };
  return {cut(0, q_width), cut(q_width, kv_width), cut(q_width + kv_width, kv_width)};
}

Attended attend(const Parts& p) { return primitives(p.q).attend(p.q, p.k, p.v); }

// Gradients at the turned queries and keys and at the values.
void attend_backward(const Parts& p, const Attended& attended, const at::Tensor& dy,
                     const Parts& gradients) {
  primitives(p.q).attend_gradient(p.q, p.k, p.v, attended, dy.contiguous(), gradients.q,
                                  gradients.k, gradients.v);
}

void turn(const Parts& p, const GroupedAttention& o, RopeTurn direction) {
  const at::Tensor table = rope_table(o.rope, o.head_width, p.q.size(1)).to(p.q.device());
  rope(p.q, table, direction);
  rope(p.k, table, direction);
}

void save(AutogradContext* context, const GroupedAttention& o) {
  context->saved_data["queries_per_key"] = o.queries_per_key;
  context->saved_data["head_width"] = o.head_width;
  context->saved_data["rope"] = std::vector<double>{
      o.rope.theta, o.rope.factor, o.rope.low_frequency_factor, o.rope.high_frequency_factor,
      static_cast<double>(o.rope.original_context)};
}

GroupedAttention saved_options(AutogradContext* context) {
  const std::vector<double> rope = context->saved_data["rope"].toDoubleVector();
  return {.queries_per_key = context->saved_data["queries_per_key"].toInt(),
          .head_width = context->saved_data["head_width"].toInt(),
          .rope = {rope[0], rope[1], rope[2], rope[3], static_cast<std::int64_t>(rope[4])}};
}

struct GroupedAttentionFunction : torch::autograd::Function<GroupedAttentionFunction> {
  enum Saved { kQkv, kY, kLogSum };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const GroupedAttention& options) {
    const Parts p = parts(qkv, options);
    turn(p, options, RopeTurn::kForward);
    Attended a = attend(p);
    context->save_for_backward({qkv, a.y, a.log_sum});
    save(context, options);
    return a.y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const GroupedAttention options = saved_options(context);
    const at::Tensor dqkv = at::empty_like(saved[kQkv]);
    const Parts d = parts(dqkv, options);
    attend_backward(parts(saved[kQkv], options), {saved[kY], saved[kLogSum]}, gradients[0], d);
    turn(d, options, RopeTurn::kBack);
    return {dqkv, {}};
  }
};

struct NormedGroupedAttentionFunction : torch::autograd::Function<NormedGroupedAttentionFunction> {
  enum Saved { kQkv, kY, kLogSum, kQueryGain, kKeyGain, kQueryRstd, kKeyRstd };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const at::Tensor& query_gain, const at::Tensor& key_gain,
                            const GroupedAttention& options, const TensorParallel* group) {
    context->saved_data["group"] = keep_pointer(group);
    Parts p = parts(qkv, options);
    at::Tensor query_rstd, key_rstd;
    p.q = rms_norm_forward(p.q.contiguous(), query_gain, options.norm_epsilon, query_rstd);
    p.k = rms_norm_forward(p.k.contiguous(), key_gain, options.norm_epsilon, key_rstd);
    turn(p, options, RopeTurn::kForward);
    Attended a = attend(p);
    context->save_for_backward({qkv, a.y, a.log_sum, query_gain, key_gain, query_rstd, key_rstd});
    save(context, options);
    return a.y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &query_gain = saved[kQueryGain], &key_gain = saved[kKeyGain];
    const GroupedAttention options = saved_options(context);
    const Parts raw = parts(saved[kQkv], options);
    const at::Tensor q = raw.q.contiguous(), k = raw.k.contiguous();
    const Parts normed = {rms_norm_again(q, query_gain, saved[kQueryRstd]),
                          rms_norm_again(k, key_gain, saved[kKeyRstd]), raw.v};
    turn(normed, options, RopeTurn::kForward);
    const at::Tensor dqkv = at::empty_like(saved[kQkv]);
    const Parts packed = parts(dqkv, options);
    // Norms take contiguous heads.
    Parts d = {at::empty_like(q), at::empty_like(k), packed.v};
    attend_backward(normed, {saved[kY], saved[kLogSum]}, gradients[0], d);
    turn(d, options, RopeTurn::kBack);
    at::Tensor dgains =
        at::zeros({2, options.head_width}, saved[kQueryRstd].options().dtype(at::kFloat));
    packed.q.copy_(rms_norm_backward(q, d.q, query_gain, saved[kQueryRstd], dgains[0]));
    packed.k.copy_(rms_norm_backward(k, d.k, key_gain, saved[kKeyRstd], dgains[1]));
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    if (group && !group->sequence()) group->all_reduce_sum(dgains);
    query_gain.grad().add_(dgains[0]);
    key_gain.grad().add_(dgains[1]);
    return {dqkv, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor grouped_attention(const at::Tensor& qkv, const GroupedAttention& options) {
  return GroupedAttentionFunction::apply(qkv, options);
}

at::Tensor normed_grouped_attention(const at::Tensor& qkv, const at::Tensor& query_gain,
                                    const at::Tensor& key_gain, const GroupedAttention& options,
                                    const TensorParallel* group) {
  return NormedGroupedAttentionFunction::apply(qkv, query_gain, key_gain, options, group);
}

}  // namespace strata
