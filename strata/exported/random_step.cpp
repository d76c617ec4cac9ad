#include "strata/exported/random_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <map>

#include "strata/base/error_source.h"
#include "strata/exported/attention_dropout.h"
#include "strata/exported/graph_step.h"
#include "strata/exported/operator_rules.h"

namespace strata {
namespace {

constexpr ErrorSource kRandomErrors{"exported.read"};

struct Form {
  const char* input;
  RandomStep::Kind kind;
  bool by_channel;
};

const Form* form_of(const GraphNode& node) {
  using enum RandomStep::Kind;
  static const auto& forms = *new std::map<std::string, Form>{
      {"aten::dropout.", {"input", kDropout, false}},
      {"aten::feature_dropout.", {"input", kDropout, true}},
      {"aten::alpha_dropout.", {"input", kAlphaDropout, false}},
      {"aten::feature_alpha_dropout.", {"input", kAlphaDropout, true}},
      {"aten::bernoulli.p", {"self", kBernoulli, false}},
  };
  const auto found = forms.find(node.op + "." + node.overload);
  return found == forms.end() ? nullptr : &found->second;
}

// Ones where the element is kept, else zeros, in the shape that x has for its samples and channels.
at::Tensor kept_elements(const at::Tensor& x, std::int64_t samples, const RandomStep& step,
                         const ForwardContext& context) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  if (step.by_channel) std::fill(shape.begin() + 2, shape.end(), 1);
  const at::Tensor ones = at::ones(shape, x.options());
  if (step.dropout.probability == 1) return at::zeros_like(ones);
  return dropout_of_samples(ones, samples, step.dropout, context).gt(0).to(x.scalar_type());
}

// The constants of torch.nn.functional.alpha_dropout keep mean and variance.
at::Tensor alpha_dropout(const at::Tensor& x, const at::Tensor& kept, double dropped) {
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * dropped + 1) * (1 - dropped));
  return x * kept * a + (kept - 1) * (kAlpha * a) + kAlpha * a * dropped;
}

}  // namespace

at::Tensor RandomStep::apply(const at::Tensor& x, std::int64_t samples,
                             const ForwardContext& context) const {
  const double dropped = dropout.probability;
  if (kind == Kind::kBernoulli)
    return context.training ? kept_elements(x, samples, *this, context)
                            : at::full_like(x, 1 - dropped);
  if (!context.training || dropped == 0) return x;
  if (dropped < 1 && kind == Kind::kDropout && !by_channel)
    return dropout_of_samples(x, samples, dropout, context);
  const at::Tensor kept = kept_elements(x, samples, *this, context);
  if (dropped == 1) return x * kept;
  return kind == Kind::kDropout ? x * (kept / (1 - dropped)) : alpha_dropout(x, kept, dropped);
}

bool is_random_step(const GraphNode& node) { return form_of(node) != nullptr; }

std::string random_input(const GraphNode& node) { return value_named(node, form_of(node)->input); }

RandomStep random_step(const ExportedProgram& program, const GraphNode& node, int& dropouts) {
  const Form& form = *form_of(node);
  RandomStep step{.kind = form.kind, .by_channel = form.by_channel};
  const bool is_number = form.kind == RandomStep::Kind::kBernoulli;
  double dropped = 0;
  if (is_number) {
    dropped = 1 - (find_argument(node, "p") ? real_named(node, "p") : 0.5);
  } else if (flag_named(node, "train")) {
    dropped = real_named(node, "p");
  }
  if (!(dropped >= 0 && dropped <= 1))
    throw kRandomErrors.user(node.line, "it is no probability", "0 to 1", std::to_string(dropped));
  if (dropped == 0 && !is_number) return step;
  const std::string input = random_input(node);
  require_samples(program, node, input);
  const at::ScalarType dtype = program.shape(input).dtype;
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)
    throw kRandomErrors.user(node.line, "random numbers of a type that is not drawn",
                             "fp32, bf16 or fp16", c10::toString(dtype), "convert the result");
  if (form.by_channel && program.shape(input).sizes.size() < 2)
    throw kRandomErrors.user(node.line, "dropout of channels of a value that has none",
                             "[samples, channels, ...]", "one dimension", "use dropout");
  step.dropout = next_dropout(node, dropped, dropouts);
  return step;
}

void require_samples(const ExportedProgram& program, const GraphNode& node,
                     const std::string& value) {
  const std::vector<BatchNumber>& sizes = program.shape(value).sizes;
  if (!sizes.empty() && sizes[0].per_sample > 0 && sizes[0].constant == 0) return;
  throw kRandomErrors.user(node.line,
                           "random numbers for a value whose first dimension is not the samples",
                           "samples, or a multiple of them, first", "another dimension",
                           "put the samples first, or leave this operator out");
}

Dropout next_dropout(const GraphNode& node, double probability, int& dropouts) {
  if (dropouts >= kDropoutSites)
    throw kRandomErrors.user(node.line, "a layer has too many uses of dropout",
                             "at most " + std::to_string(kDropoutSites), "more",
                             "choose smaller modules as layers");
  return {.probability = probability, .site = dropouts++};
}

}  // namespace strata
