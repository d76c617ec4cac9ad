#include "strata/nn/ops/dropout.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "strata/base/philox.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

constexpr int kSitesPerLayer = 16;

MaskOfSamples make_mask(Dropout dropout, const ForwardContext& context) {
  return {
      {.key = mix_key(mix_key(context.seed, 0x64726f70), context.step),
       .site = static_cast<std::uint32_t>(context.layer * kSitesPerLayer + dropout.site),
       .threshold = static_cast<std::uint32_t>(std::llround(dropout.probability * 4294967296.0)),
       .scale = static_cast<float>(1.0 / (1.0 - dropout.probability))},
      context.first_sample,
      context.tensor && context.tensor->sequence() ? context.tensor->rank() : 0};
}

at::Tensor masked(const at::Tensor& dy, const MaskOfSamples& mask) {
  return primitives(dy).dropout_add({}, dy.contiguous(), mask);
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, MaskOfSamples mask) {
    context->saved_data["mask"] = pack(mask);
    return primitives(x).dropout_add({}, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {masked(gradients[0], unpack(context->saved_data["mask"])), {}};
  }

  static c10::IValue pack(const MaskOfSamples& m) {
    return std::vector<std::int64_t>{static_cast<std::int64_t>(m.mask.key), m.mask.site,
                                     m.mask.threshold, m.first_sample, m.part};
  }
  static MaskOfSamples unpack(const c10::IValue& packed) {
    const auto v = packed.toIntVector();
    const auto threshold = static_cast<std::uint32_t>(v[2]);
    return {{.key = static_cast<std::uint64_t>(v[0]),
             .site = static_cast<std::uint32_t>(v[1]),
             .threshold = threshold,
             .scale = static_cast<float>(1.0 / (1.0 - threshold / 4294967296.0))},
            v[3],
            v[4]};
  }
};

struct ResidualDropoutFunction : torch::autograd::Function<ResidualDropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& residual,
                            const at::Tensor& x, MaskOfSamples mask) {
    context->saved_data["mask"] = DropoutFunction::pack(mask);
    return primitives(x).dropout_add(residual, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const MaskOfSamples mask = DropoutFunction::unpack(context->saved_data["mask"]);
    return {gradients[0], masked(gradients[0], mask), {}};
  }
};

struct AddFunction : torch::autograd::Function<AddFunction> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return primitives(a).add(a, b);
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], gradients[0]};
  }
};

bool is_off(Dropout dropout, const ForwardContext& context) {
  return !context.training || dropout.probability == 0;
}

}  // namespace

at::Tensor dropout(const at::Tensor& x, Dropout dropout, const ForwardContext& context) {
  return is_off(dropout, context) ? x : DropoutFunction::apply(x, make_mask(dropout, context));
}

at::Tensor residual_dropout(const at::Tensor& residual, const at::Tensor& x, Dropout dropout,
                            const ForwardContext& context) {
  if (is_off(dropout, context)) return AddFunction::apply(residual, x);
  return ResidualDropoutFunction::apply(residual, x, make_mask(dropout, context));
}

}  // namespace strata
