// There are three ways to the same numbers: without norms the packed projections are attended in
// place; after norms contiguous copies of queries and keys; in decoding keys and values come from
// pages.
#include "strata/nn/ops/attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "strata/base/errors.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/device/device.h"
#include "strata/nn/ops/context_attention.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

// Sizes of a rank's own heads, from the columns of queries or outputs.
HeadSizes sizes_of_output(const at::Tensor& y, const Attention& o) {
  return {.width = o.head_width,
          .queries_per_key = o.queries_per_key,
          .key_heads = y.size(2) / o.head_width / o.queries_per_key};
}
HeadSizes sizes_of(const at::Tensor& qkv, const Attention& o) {
  return {.width = o.head_width,
          .queries_per_key = o.queries_per_key,
          .key_heads = qkv.size(2) / o.head_width / (o.queries_per_key + 2)};
}

Heads split(const at::Tensor& qkv, const Attention& o) {
  return split_heads(qkv, sizes_of(qkv, o));
}

// For packed projections of a rank's own heads.
AttentionScope scope_of(const at::Tensor& qkv, const Attention& o, const TensorParallel* tensor,
                        const ContextParallel* group) {
  const HeadSizes sizes = sizes_of(qkv, o);
  const std::int64_t heads = sizes.key_heads * sizes.queries_per_key;
  return {.group = group, .pattern = o.pattern, .first_head = tensor ? tensor->rank() * heads : 0};
}

void turn(const Heads& heads, const at::Tensor& table, RopeTurn direction) {
  for (const at::Tensor& x : {heads.q, heads.k})
    primitives(x).attention.rotate(x, table, direction);
}

// Turns the heads of the rank's tokens. A null group: whole samples.
void turn(const Heads& heads, const Attention& o, RopeTurn direction,
          const ContextParallel* group) {
  if (!o.rope) return;
  const std::int64_t length = heads.q.size(1);
  const auto table = [&](const TokenRange& tokens) {
    return rope_table(*o.rope, o.head_width, tokens.count, tokens.first, heads.q.device());
  };
  if (!group) return turn(heads, table({0, length}), direction);
  const auto [early, late] = own_tokens(group->split(), group->rank(), length * group->size());
  turn(heads, at::cat({table(early), table(late)}), direction);
}

void save(AutogradContext* context, const Attention& o) {
  auto& data = context->saved_data;
  data["head_width"] = o.head_width;
  data["queries_per_key"] = o.queries_per_key;
  if (!o.rope) return;
  data["theta"] = o.rope->theta;
  data["factor"] = o.rope->factor;
  data["low_frequency_factor"] = o.rope->low_frequency_factor;
  data["high_frequency_factor"] = o.rope->high_frequency_factor;
  data["original_context"] = o.rope->original_context;
}

Attention saved_options(AutogradContext* context) {
  const auto& data = context->saved_data;
  Attention o{.head_width = data.at("head_width").toInt(),
              .queries_per_key = data.at("queries_per_key").toInt()};
  if (data.count("theta") > 0)
    o.rope = {.theta = data.at("theta").toDouble(),
              .factor = data.at("factor").toDouble(),
              .low_frequency_factor = data.at("low_frequency_factor").toDouble(),
              .high_frequency_factor = data.at("high_frequency_factor").toDouble(),
              .original_context = data.at("original_context").toInt()};
  return o;
}

void save(AutogradContext* context, const AttentionScope& scope) {
  save_pointer(context, "context", scope.group);
  save_pointer(context, "pattern", scope.pattern);
  context->saved_data["first_head"] = scope.first_head;
}

AttentionScope saved_scope(AutogradContext* context) {
  return {.group = saved_pointer<const ContextParallel>(context, "context"),
          .pattern = saved_pointer<const AttentionPattern>(context, "pattern"),
          .first_head = context->saved_data.at("first_head").toInt()};
}

// How much of what backward reads is made again there.
struct AttentionAgain {
  RemadePtr tensors;    // as remade_attention() makes them; null: nothing
  bool output = false;  // y and log_sum, too
};

// The tensors that an attention saves: qkv unless it is made again, y and log_sum likewise.
variable_list saved_of(const at::Tensor& qkv, const Attended& made, const AttentionAgain& again) {
  const bool saves_output = !again.output;
  return {again.tensors ? at::Tensor() : qkv, saves_output ? made.y : at::Tensor(),
          saves_output ? made.log_sum : at::Tensor()};
}

// What a backward of attention reads.
struct AttentionInputs {
  at::Tensor qkv;
  Attended made;
};

// The first three saved tensors, or those that the holder makes.
AttentionInputs inputs_of(AutogradContext* context, const variable_list& saved) {
  AttentionInputs inputs{saved[0], {saved[1], saved[2]}};
  const RemadePtr again = saved_remade(context);
  if (!again) return inputs;
  const std::vector<at::Tensor> tensors = again->take();
  inputs.qkv = tensors[0];
  if (tensors.size() > 1) inputs.made = {.y = tensors[2], .log_sum = tensors[1]};
  return inputs;
}

// Queries and keys after their norms, in copies.
Heads normed_heads(const Heads& raw, const Attention& o, NormStatistics& queries,
                   NormStatistics& keys) {
  const NormPrimitives& norms = primitives(raw.q).norms;
  return {norms.norm(raw.q.contiguous(), {o.query_gain, {}, o.norm_epsilon}, queries),
          norms.norm(raw.k.contiguous(), {o.key_gain, {}, o.norm_epsilon}, keys), raw.v};
}

// Makes, from the product of queries, keys and values, what backward reads: the packed operands
// or, with norms, qkv; with `output` also log_sum and y, then the output of the rank's tokens.
std::vector<at::Tensor> remade_attention(const at::Tensor& qkv, const Attention& o, bool output,
                                         const AttentionScope& scope) {
  const ContextParallel* group = scope.group;
  const HeadSizes sizes = sizes_of(qkv, o);
  at::Tensor kept = qkv;
  Heads attending;
  if (o.query_gain.defined()) {
    if (!output) return {qkv};
    NormStatistics queries, keys;
    const Heads heads = normed_heads(split(qkv, o), o, queries, keys);
    turn(heads, o, RopeTurn::kForward, group);
    attending = operands(heads, sizes, group);
  } else {
    turn(split(qkv, o), o, RopeTurn::kForward, group);
    kept = packed_operands(qkv, sizes, group);
    if (!output) return {kept};
    attending = split_heads(kept, sizes);
  }
  const Attended made = attend_operands(attending, sizes, scope);
  return {kept, made.log_sum, made.y, own_output(made, sizes, group)};
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const Attention& options, const AttentionScope& scope,
                            const AttentionAgain& again) {
    const ContextParallel* group = scope.group;
    const HeadSizes sizes = sizes_of(qkv, options);
    turn(split_heads(qkv, sizes), options, RopeTurn::kForward, group);
    const at::Tensor packed = packed_operands(qkv, sizes, group);
    const Attended made = attend_operands(split_heads(packed, sizes), sizes, scope);
    context->save_for_backward(saved_of(packed, made, again));
    save(context, options);
    save(context, scope);
    save_remade(context, again.tensors);
    return own_output(made, sizes, group);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Attention options = saved_options(context);
    const AttentionScope scope = saved_scope(context);
    const auto [packed, made] = inputs_of(context, context->get_saved_variables());
    const at::Tensor& dy = gradients[0];
    const HeadSizes sizes = sizes_of_output(dy, options);
    const std::int64_t columns = (sizes.queries_per_key + 2) * sizes.key_heads * sizes.width;
    const at::Tensor dqkv = at::empty({dy.size(0), dy.size(1), columns}, dy.options());
    const Heads d = split_heads(dqkv, sizes);
    attend_operands_gradient(split_heads(packed, sizes), made, dy, d, sizes, scope);
    turn(d, options, RopeTurn::kBack, scope.group);
    return {dqkv, {}, {}, {}};
  }
};

struct NormedAttentionFunction : torch::autograd::Function<NormedAttentionFunction> {
  enum Saved { kQueryGain = 3, kKeyGain, kQueryRstd, kKeyRstd };  // after those of inputs_of()

  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv,
                            const at::Tensor& query_gain, const at::Tensor& key_gain,
                            const Attention& options, const AttentionScope& scope,
                            const TensorParallel* tensor, const AttentionAgain& again) {
    const ContextParallel* group = scope.group;
    const HeadSizes sizes = sizes_of(qkv, options);
    NormStatistics queries, keys;
    const Heads heads = normed_heads(split_heads(qkv, sizes), options, queries, keys);
    turn(heads, options, RopeTurn::kForward, group);
    const Attended made = attend_operands(operands(heads, sizes, group), sizes, scope);
    variable_list saved = saved_of(qkv, made, again);
    for (const at::Tensor& more : {query_gain, key_gain, queries.rstd, keys.rstd})
      saved.push_back(more);
    context->save_for_backward(std::move(saved));
    save(context, options);
    save(context, scope);
    save_pointer(context, "tensor", tensor);
    save_remade(context, again.tensors);
    return own_output(made, sizes, group);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Norm query_norm{.gain = saved[kQueryGain]}, key_norm{.gain = saved[kKeyGain]};
    const NormStatistics queries{.rstd = saved[kQueryRstd]}, keys{.rstd = saved[kKeyRstd]};
    const Attention options = saved_options(context);
    const AttentionScope scope = saved_scope(context);
    const ContextParallel* group = scope.group;
    const auto [qkv, made] = inputs_of(context, saved);
    const HeadSizes sizes = sizes_of(qkv, options);
    const Heads raw = split_heads(qkv, sizes);
    const at::Tensor q = raw.q.contiguous(), k = raw.k.contiguous();
    const Primitives& compute = primitives(q);
    const Heads normed = {compute.norms.norm_again(q, query_norm, queries),
                          compute.norms.norm_again(k, key_norm, keys), raw.v};
    turn(normed, options, RopeTurn::kForward, group);
    const at::Tensor dqkv = at::empty_like(qkv);
    const Heads packed = split_heads(dqkv, sizes);
    // Norms require contiguous heads.
    const Heads d = {at::empty_like(q), at::empty_like(k), packed.v};
    attend_operands_gradient(operands(normed, sizes, group), made, gradients[0], d, sizes, scope);
    turn(d, options, RopeTurn::kBack, group);
    at::Tensor dgains =
        at::zeros({2, options.head_width}, saved[kQueryRstd].options().dtype(at::kFloat));
    compute.norms.norm_gradient(q, d.q, query_norm, queries, {dgains[0]});
    compute.norms.norm_gradient(k, d.k, key_norm, keys, {dgains[1]});
    packed.q.copy_(d.q);
    packed.k.copy_(d.k);
    const auto* tensor = saved_pointer<const TensorParallel>(context, "tensor");
    if (tensor && !tensor->sequence()) tensor->all_reduce_sum(dgains);
    accumulate_bias_gradient(query_norm.gain, dgains.narrow(0, 0, 1));
    accumulate_bias_gradient(key_norm.gain, dgains.narrow(0, 1, 1));
    return {dqkv, {}, {}, {}, {}, {}, {}};
  }
};

// The rotary tables of every sequence's tokens, packed like the sample.
at::Tensor packed_rope_table(const RopeOptions& options, std::int64_t width,
                             std::span<const SequenceTokens> pass, c10::Device device) {
  std::vector<at::Tensor> tables;
  for (const SequenceTokens& tokens : pass)
    tables.push_back(rope_table(options, width, tokens.count, tokens.position, device));
  return at::cat(tables);
}

// Writes the keys or values of new tokens, x [1, T, heads, width], to their slots in the pages.
void keep(const at::Tensor& pool, const at::Tensor& x, const SequenceTokens& tokens) {
  const std::int64_t page_tokens = pool.size(2), end = tokens.position + tokens.count;
  for (std::int64_t at = tokens.position; at < end;) {
    const std::int64_t slot = at % page_tokens, count = std::min(page_tokens - slot, end - at);
    pool.select(0, tokens.pages[at / page_tokens])
        .narrow(1, slot, count)
        .copy_(x[0].narrow(0, tokens.first + at - tokens.position, count).transpose(0, 1));
    at += count;
  }
}

// All new keys and values are written before any token attends, so a sequence may share pages with
// one that fills them in the same pass.
at::Tensor attend_cached(const at::Tensor& qkv, const Attention& options,
                         const AttentionScope& scope, const LayerCache& cache) {
  STRATA_CHECK_EQ(cache.tensors.size(), std::size_t{2}, "nn.attend_cached");
  STRATA_CHECK_EQ(qkv.size(0), 1, "nn.attend_cached");
  Heads heads = split(qkv, options);
  const auto normed = [&](const at::Tensor& x, const at::Tensor& gain) {
    NormStatistics unused;
    return primitives(x).norms.norm(x.contiguous(), {gain, {}, options.norm_epsilon}, unused);
  };
  if (options.query_gain.defined()) {
    heads.q = normed(heads.q, options.query_gain);
    heads.k = normed(heads.k, options.key_gain);
  }
  if (options.rope)
    turn(heads, packed_rope_table(*options.rope, options.head_width, cache.pass, heads.q.device()),
         RopeTurn::kForward);
  const at::Tensor &keys = cache.tensors[0], &values = cache.tensors[1];
  for (const SequenceTokens& tokens : cache.pass) {
    const std::int64_t seen = tokens.position + tokens.count;
    STRATA_CHECK(seen <= options.sample, "nn.attend_cached");
    STRATA_CHECK(seen <= std::ssize(tokens.pages) * keys.size(2), "nn.attend_cached");
    keep(keys, heads.k, tokens);
    keep(values, heads.v, tokens);
  }
  const AttentionPrimitives& attention = primitives(qkv).attention;
  std::vector<at::Tensor> outputs;
  for (const SequenceTokens& tokens : cache.pass) {
    const at::Tensor q = heads.q.narrow(1, tokens.first, tokens.count);
    const PagedText text{
        .pages = tokens.pages, .position = tokens.position, .sample = options.sample};
    outputs.push_back(scope.pattern ? attention.attend_sparse_pages(
                                          q, keys, values, text, {*scope.pattern, scope.first_head})
                                    : attention.attend_pages(q, keys, values, text));
  }
  return at::cat(outputs, 1);
}

at::Tensor attend(const at::Tensor& qkv, const Attention& attention, const ForwardContext& context,
                  const AttentionAgain& again) {
  const AttentionScope scope = scope_of(qkv, attention, context.tensor, context.context_parallel);
  if (context.cache) return attend_cached(qkv, attention, scope, *context.cache);
  if (!attention.query_gain.defined())
    return AttentionFunction::apply(qkv, attention, scope, again);
  return NormedAttentionFunction::apply(qkv, attention.query_gain, attention.key_gain, attention,
                                        scope, context.tensor, again);
}

}  // namespace

at::Tensor attend(const at::Tensor& qkv, const Attention& attention,
                  const ForwardContext& context) {
  return attend(qkv, attention, context, {});
}

at::Tensor self_attention(const at::Tensor& x, const Norm& norm, const Affine& in,
                          const Attention& attention, const Affine& out,
                          const ForwardContext& context) {
  const ColumnParallel columns{context.tensor};
  const bool keep = context.recompute == Recompute::kNone;
  AttentionAgain again{.output = context.recompute >= Recompute::kAttention};
  if (context.recompute >= Recompute::kProducts)
    again.tensors = c10::make_intrusive<Remade>(
        [=, x = x.detach(), output = again.output, group = context.context_parallel] {
          const at::Tensor qkv = norm_linear_again(x, norm, in, columns);
          return remade_attention(qkv, attention, output,
                                  scope_of(qkv, attention, columns.group, group));
        });
  // A statement of its own, so that the operands of attention are freed before the next product.
  const at::Tensor y =
      attend(norm_linear(x, norm, in.weight, in.bias, keep, columns), attention, context, again);
  return linear(y, out.weight, out.bias, RowParallel{context.tensor},
                again.output ? again.tensors : RemadePtr());
}

std::vector<TensorSpec> key_value_cache(std::int64_t pages, std::int64_t heads,
                                        std::int64_t page_tokens, std::int64_t width,
                                        at::ScalarType dtype) {
  return std::vector<TensorSpec>(2, {.shape = {pages, heads, page_tokens, width}, .dtype = dtype});
}

}  // namespace strata
