// Backward draws the mask again from its key. Without dropout, adding is still an operator, so that
// it uses the device's primitives.
#include "strata/nn/ops/residual.h"

#include <ATen/ops/empty_like.h>

#include <cmath>

#include "strata/base/philox.h"
#include "strata/comm/context_parallel.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

// Which elements are dropped, in one piece of each sample or, if the rank's tokens are those of two
// chunks, in two pieces of equal size.
struct Mask {
  MaskOfSamples first;
  std::int64_t second_part = -1;  // MaskOfSamples::part of the second piece; -1: one piece
};

Mask make_mask(Dropout dropout, const at::Tensor& x, const ForwardContext& context) {
  const std::uint64_t of_run = mix_key(context.seed, 0x64726f70);
  const bool divided = context.tensor && context.tensor->sequence();
  const int part = divided ? context.tensor->rank() : 0;
  const MaskOfSamples mask{
      {.key = context.scalars ? of_run : mix_key(of_run, context.step),
       .site = static_cast<std::uint32_t>(context.layer * kDropoutSites + dropout.site),
       .threshold = static_cast<std::uint32_t>(std::llround(dropout.probability * 4294967296.0)),
       .scale = static_cast<float>(1.0 / (1.0 - dropout.probability))},
      context.first_sample,
      part,
      context.scalars};
  const ContextParallel* group = context.context_parallel;
  if (!group || group->size() == 1) return {mask};
  const int parts = divided ? context.tensor->size() : 1;
  const auto [first, second] =
      own_tokens(group->split(), group->rank(), x.size(1) * parts * group->size(), part, parts);
  Mask pieces{mask, second.first / second.count};
  pieces.first.part = first.first / first.count;
  return pieces;
}

void save_mask(AutogradContext* context, const Mask& pieces) {
  const MaskOfSamples& mask = pieces.first;
  auto& data = context->saved_data;
  data["key"] = static_cast<std::int64_t>(mask.mask.key);
  data["site"] = static_cast<std::int64_t>(mask.mask.site);
  data["threshold"] = static_cast<std::int64_t>(mask.mask.threshold);
  data["scale"] = static_cast<double>(mask.mask.scale);
  data["first_sample"] = mask.first_sample;
  data["part"] = mask.part;
  data["second_part"] = pieces.second_part;
  save_pointer(context, "scalars", mask.scalars);
}

Mask saved_mask(AutogradContext* context) {
  const auto& data = context->saved_data;
  return {{{.key = static_cast<std::uint64_t>(data.at("key").toInt()),
            .site = static_cast<std::uint32_t>(data.at("site").toInt()),
            .threshold = static_cast<std::uint32_t>(data.at("threshold").toInt()),
            .scale = static_cast<float>(data.at("scale").toDouble())},
           data.at("first_sample").toInt(),
           data.at("part").toInt(),
           saved_pointer<const StepScalars>(context, "scalars")},
          data.at("second_part").toInt()};
}

// residual + mask * x; without a residual mask * x.
at::Tensor dropout_add(const at::Tensor& residual, const at::Tensor& x, const Mask& mask) {
  const ElementPrimitives& elements = primitives(x).elements;
  if (mask.second_part < 0) return elements.dropout_add(residual, x, mask.first);
  at::Tensor y = at::empty_like(x);
  const std::int64_t half = x.size(1) / 2;
  for (std::int64_t sample = 0; sample < x.size(0); ++sample) {
    for (const std::int64_t begin : {std::int64_t{0}, half}) {
      const auto piece = [&](const at::Tensor& whole) {
        return whole.defined() ? whole.narrow(0, sample, 1).narrow(1, begin, half) : whole;
      };
      MaskOfSamples of_piece = mask.first;
      of_piece.first_sample += sample;
      if (begin > 0) of_piece.part = mask.second_part;
      piece(y).copy_(elements.dropout_add(piece(residual), piece(x), of_piece));
    }
  }
  return y;
}

at::Tensor masked(const at::Tensor& dy, const Mask& mask) {
  return dropout_add({}, dy.contiguous(), mask);
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Mask& mask) {
    save_mask(context, mask);
    return dropout_add({}, x, mask);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {masked(gradients[0], saved_mask(context)), {}};
  }
};

struct ResidualDropoutFunction : torch::autograd::Function<ResidualDropoutFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& residual,
                            const at::Tensor& x, const Mask& mask) {
    save_mask(context, mask);
    return dropout_add(residual, x, mask);
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
  return is_off(dropout, context) ? x : DropoutFunction::apply(x, make_mask(dropout, x, context));
}

at::Tensor residual_add(const at::Tensor& residual, const at::Tensor& x) {
  return AddFunction::apply(residual, x);
}

at::Tensor residual_dropout(const at::Tensor& residual, const at::Tensor& x, Dropout dropout,
                            const ForwardContext& context) {
  if (is_off(dropout, context)) return residual_add(residual, x);
  return ResidualDropoutFunction::apply(residual, x, make_mask(dropout, x, context));
}

}  // namespace strata
