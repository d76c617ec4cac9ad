/// Computes the loss of a Llama, Qwen 2 or Qwen 3 in plain ATen, whose autograd gives the
/// gradients: an oracle that shares no code with the layers, and knows no ranks.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <string>

#include "strata/base/ignored_target.h"
#include "strata/models/decoder_options.h"

namespace strata::plain_llama {

using Weights = std::map<std::string, at::Tensor>;  ///< by the names of checkpoints

inline at::Tensor norm(const at::Tensor& x, const at::Tensor& gain) {
  return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * gain;
}

inline at::Tensor turned(const at::Tensor& x, double theta) {  // [B, H, T, D]
  const std::int64_t half = x.size(3) / 2;
  const at::Tensor exponents = at::arange(half).to(at::kDouble) / static_cast<double>(half);
  const at::Tensor angles =
      at::outer(at::arange(x.size(2)).to(at::kDouble), at::pow(theta, -exponents)).to(at::kFloat);
  const at::Tensor a = x.narrow(3, 0, half), b = x.narrow(3, half, half);
  return at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, 3);
}

inline at::Tensor attention(const at::Tensor& x, Weights& w, const std::string& name,
                            const DecoderOptions& o) {
  at::Tensor qkv = at::linear(x, w[name + "qkv.weight"]);
  if (o.qkv_bias) qkv = qkv + w[name + "qkv.bias"];
  const auto part = [&](std::int64_t begin, std::int64_t heads) {
    return qkv.narrow(2, begin * o.head_width, heads * o.head_width)
        .view({x.size(0), x.size(1), heads, o.head_width})
        .transpose(1, 2);
  };
  at::Tensor q = part(0, o.heads), k = part(o.heads, o.kv_heads);
  if (o.qk_norm) {
    q = norm(q, w[name + "query_norm.weight"]);
    k = norm(k, w[name + "key_norm.weight"]);
  }
  const std::int64_t group = o.heads / o.kv_heads;
  k = turned(k, o.rope.theta).repeat_interleave(group, 1);
  const at::Tensor v = part(o.heads + o.kv_heads, o.kv_heads).repeat_interleave(group, 1);
  const at::Tensor scores = at::matmul(turned(q, o.rope.theta), k.transpose(-1, -2)) /
                            std::sqrt(static_cast<double>(o.head_width));
  const at::Tensor mask = at::ones({x.size(1), x.size(1)}).triu(1).to(at::kBool);
  const at::Tensor y = at::matmul(scores.masked_fill(mask, -INFINITY).softmax(-1), v);
  return at::linear(y.transpose(1, 2).reshape({x.size(0), x.size(1), o.heads * o.head_width}),
                    w[name + "out.weight"]);
}

/// The mean over targets; with tied weights "head.weight" is another name of the embedding's.
inline at::Tensor mean_loss(Weights& w, const DecoderOptions& o, const at::Tensor& tokens,
                            const at::Tensor& targets, double label_smoothing = 0) {
  at::Tensor x = at::embedding(w["embed.tokens.weight"], tokens);
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const std::string block = "block" + std::to_string(i) + ".";
    x = x + attention(norm(x, w[block + "norm1.weight"]), w, block + "attention.", o);
    const at::Tensor gate_up =
        at::linear(norm(x, w[block + "norm2.weight"]), w[block + "mlp.gate_up.weight"]);
    const at::Tensor gate = gate_up.narrow(2, 0, o.mlp_width);
    x = x + at::linear(at::silu(gate) * gate_up.narrow(2, o.mlp_width, o.mlp_width),
                       w[block + "mlp.down.weight"]);
  }
  const at::Tensor logits = at::linear(norm(x, w["head.norm.weight"]), w["head.weight"]);
  return at::cross_entropy_loss(logits.view({-1, o.vocab}), targets.view(-1), {},
                                at::Reduction::Mean, kIgnoredTarget, label_smoothing);
}

}  // namespace strata::plain_llama
