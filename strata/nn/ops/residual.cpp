// Backward draws the mask again from its key. Without dropout, adding is still an operator, so that
// it uses the device's primitives.
#include "strata/nn/ops/residual.h"

#include <cmath>

#include "strata/base/philox.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

MaskOfSamples make_mask(Dropout dropout, const ForwardContext& context) {
  const std::uint64_t of_run = mix_key(context.seed, 0x64726f70);
  return {
      {.key = context.scalars ? of_run : mix_key(of_run, context.step),
       .site = static_cast<std::uint32_t>(context.layer * kDropoutSites + dropout.site),
       .threshold = static_cast<std::uint32_t>(std::llround(dropout.probability * 4294967296.0)),
       .scale = static_cast<float>(1.0 / (1.0 - dropout.probability))},
      context.first_sample,
      context.tensor && context.tensor->sequence() ? context.tensor->rank() : 0,
      context.scalars};
}

void save_mask(AutogradContext* context, const MaskOfSamples& mask) {
  auto& data = context->saved_data;
  data["key"] = static_cast<std::int64_t>(mask.mask.key);
  data["site"] = static_cast<std::int64_t>(mask.mask.site);
  data["threshold"] = static_cast<std::int64_t>(mask.mask.threshold);
  data["scale"] = static_cast<double>(mask.mask.scale);
  data["first_sample"] = mask.first_sample;
  data["part"] = mask.part;
  save_pointer(context, "scalars", mask.scalars);
}

MaskOfSamples saved_mask(AutogradContext* context) {
  const auto& data = context->saved_data;
  return {{.key = static_cast<std::uint64_t>(data.at("key").toInt()),
           .site = static_cast<std::uint32_t>(data.at("site").toInt()),
           .threshold = static_cast<std::uint32_t>(data.at("threshold").toInt()),
           .scale = static_cast<float>(data.at("scale").toDouble())},
          data.at("first_sample").toInt(),
          data.at("part").toInt(),
          saved_pointer<const StepScalars>(context, "scalars")};
}

at::Tensor masked(const at::Tensor& dy, const MaskOfSamples& mask) {
  return primitives(dy).elements.dropout_add({}, dy.contiguous(), mask);
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, MaskOfSamples mask) {
    save_mask(context, mask);
    return primitives(x).elements.dropout_add({}, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {masked(gradients[0], saved_mask(context)), {}};
  }
};

struct ResidualDropoutFunction : torch::autograd::Function<ResidualDropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& residual,
                            const at::Tensor& x, MaskOfSamples mask) {
    save_mask(context, mask);
    return primitives(x).elements.dropout_add(residual, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0], masked(gradients[0], saved_mask(context)), {}};
  }
};

struct AddFunction : torch::autograd::Function<AddFunction> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& a, const at::Tensor& b) {
    return primitives(a).elements.add(a, b);
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

at::Tensor residual_add(const at::Tensor& residual, const at::Tensor& x) {
  return AddFunction::apply(residual, x);
}

at::Tensor residual_dropout(const at::Tensor& residual, const at::Tensor& x, Dropout dropout,
                            const ForwardContext& context) {
  if (is_off(dropout, context)) return residual_add(residual, x);
  return ResidualDropoutFunction::apply(residual, x, make_mask(dropout, context));
}

}  // namespace strata
