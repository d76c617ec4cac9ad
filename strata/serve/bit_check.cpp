#include "strata/serve/bit_check.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/nn/graph/initialise.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/nn/primitives/primitives.h"
#include "strata/serve/decoder.h"

namespace strata {
namespace {

constexpr std::int64_t kSample = 600;  // a whole block of keys and a part of one
constexpr std::int64_t kPageTokens = 24;

at::Tensor drawn_weight(const std::string& name, const std::vector<std::int64_t>& shape) {
  at::Tensor weight = at::empty(shape, host_options(at::kFloat));
  initialise(weight, {.name = name, .shape = shape, .init = {Init::Kind::kNormal, 0.3}}, "", 5);
  return weight;
}

at::Tensor operand(const std::string& name, const std::vector<std::int64_t>& shape,
                   at::ScalarType precision) {
  return drawn_weight(name, shape).to(precision);
}

std::string product_difference(at::ScalarType precision) {
  for (const std::int64_t in : {64, 96, 288, 768}) {
    const at::Tensor x = operand("x", {256, in}, precision);
    const at::Tensor weight = operand("w", {300, in}, precision),
                     bias = operand("b", {300}, precision);
    const ProductPrimitives& products = primitives(x).products;
    const at::Tensor y = products.product(x, weight, bias), z = products.logits(x, weight);
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 17, 64}) {
      const at::Tensor few = x.narrow(0, 0, rows);
      if (!products.product(few, weight, bias).equal(y.narrow(0, 0, rows)) ||
          !products.logits(few, weight).equal(z.narrow(0, 0, rows)))
        return "products of " + std::to_string(rows) + (rows == 1 ? " row" : " rows");
    }
  }
  return {};
}

// Queries of a few tokens at several positions, two heads for each head of keys.
std::string attention_difference(at::ScalarType precision) {
  constexpr std::int64_t kHeads = 4, kWidth = 32, kPages = kSample / kPageTokens;
  const at::Tensor q = operand("q", {1, kSample, kHeads, kWidth}, precision);
  const at::Tensor k = operand("k", {1, kSample, kHeads / 2, kWidth}, precision);
  const at::Tensor v = operand("v", {1, kSample, kHeads / 2, kWidth}, precision);
  const AttentionPrimitives& attention = primitives(q).attention;
  const at::Tensor y = attention.attend(q, k, v).y;
  const auto paged = [&](const at::Tensor& x) {
    return x.view({kPages, kPageTokens, kHeads / 2, kWidth}).transpose(1, 2).contiguous();
  };
  std::vector<std::int32_t> pages(kPages);
  std::iota(pages.begin(), pages.end(), 0);
  for (const std::int64_t tokens : {1, 3, 20, 35})
    for (std::int64_t position = 0; position + tokens <= kSample; position += 83)
      if (!attention
               .attend_pages(q.narrow(1, position, tokens), paged(k), paged(v),
                             {.pages = pages, .position = position, .sample = kSample})
               .equal(y.narrow(1, position, tokens)))
        return "attention of " + std::to_string(tokens) + (tokens == 1 ? " token" : " tokens");
  return {};
}

// A prompt, single tokens, the rest.
std::string model_difference(at::ScalarType precision, Group& group) {
  const DecoderOptions options{.kind = DecoderKind::kLlama,
                               .layers = 2,
                               .width = 64,
                               .heads = 4,
                               .vocab = 300,
                               .context = kSample,
                               .kv_heads = 2,
                               .mlp_width = 96,
                               .qk_norm = true};
  const Sequential model = make_model(options, DecoderOutput::kLogits, {}, precision);
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < kSample; ++i) tokens.push_back((i * i * 7 + 3 * i + 11) % 300);
  const at::Tensor whole = whole_logits(model, nullptr, tokens, drawn_weight);
  bool equal = true;
  const std::int64_t pages = kSample / kPageTokens;
  Decoder decoder(model, Mesh{}, {.page_tokens = kPageTokens, .pages = pages}, group);
  decoder.fill([](const std::vector<NamedState>& weights) {
    for (const NamedState& weight : weights)
      weight.local.copy_(drawn_weight(weight.name, weight.shape).view({-1}));
  });
  PassTokens next;
  for (std::int32_t page = 0; page < pages; ++page) next.pages.push_back(page);
  for (const std::int64_t count : {40, 1, 2, 460, 1, 1, 15, 1, 79}) {
    next.tokens = {tokens.begin() + next.position, tokens.begin() + next.position + count};
    next.logits = count;
    equal = equal && decoder.forward({next}).logits.equal(whole.narrow(0, next.position, count));
    next.position += count;
  }
  return equal ? "" : "logits of a model";
}

}  // namespace

at::Tensor whole_logits(const Sequential& model, const TensorParallel* group,
                        const std::vector<std::int64_t>& tokens, const WeightSource& weights) {
  const at::NoGradGuard no_grad;
  const int last = model.num_layers() - 1;
  std::vector<at::Tensor> values(model.dataflow().values.size());
  for (int layer = 0; layer <= last; ++layer) {
    std::vector<at::Tensor> slices, inputs;
    for (const WeightSpec& spec : model.layout(layer).specs) {
      const at::Tensor whole = weights(weight_name(model, layer, spec), spec.shape).view({-1});
      const int ranks = model.split().ranks, rank = group ? group->rank() : 0;
      slices.push_back(at::zeros(slice_shape(spec, ranks), host_options(weight_type(model))));
      for (const Run& run : slice_runs(spec, rank, ranks))
        slices.back()
            .view({-1})
            .narrow(0, run.local, run.numel)
            .copy_(whole.narrow(0, run.global, run.numel));
    }
    for (const InputRef& ref : model.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values[ref.value]
                                      : at::tensor(tokens, host_options(at::kLong)).unsqueeze(0));
    // The head returns the logits after the last token of each sample: here each token is one.
    if (layer == last) inputs[0] = inputs[0].transpose(0, 1);
    values[model.outputs(layer)[0]] =
        model.layer(layer).forward({.layer = layer, .tensor = group}, slices, inputs)[0];
  }
  return values[model.outputs(last)[0]];
}

// In a rank's thread, because libraries multiply by one thread there.
std::string decoding_differs_in(at::ScalarType precision) {
  std::string operation;
  run_thread_ranks({}, [&](Group& group, MemoryAccount&) {
    operation = product_difference(precision);
    if (operation.empty()) operation = attention_difference(precision);
    if (operation.empty()) operation = model_difference(precision, group);
  });
  return operation;
}

}  // namespace strata
