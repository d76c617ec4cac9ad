#include "strata/nn/ops/interaction.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>

#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

struct PairwiseDotsFunction : torch::autograd::Function<PairwiseDotsFunction> {
  enum Saved { kRest, kFirst };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& rest,
                            const std::optional<at::Tensor>& first_input, std::int64_t width) {
    const at::Tensor first = first_input.value_or(at::Tensor());
    context->save_for_backward({rest, first});
    context->saved_data["width"] = width;
    return primitives(rest).interactions.pairwise_dots(first, rest, width);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &rest = saved[kRest], &first = saved[kFirst];
    const at::Tensor drest = at::empty_like(rest);
    const at::Tensor dfirst = first.defined() ? at::empty_like(first) : at::Tensor();
    primitives(rest).interactions.pairwise_dots_gradient(first, rest,
                                                         context->saved_data.at("width").toInt(),
                                                         gradients[0].contiguous(), dfirst, drest);
    return {drest, dfirst, {}};
  }
};

struct CrossFunction : torch::autograd::Function<CrossFunction> {
  enum Saved { kX0, kH };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x0, const at::Tensor& h,
                            const at::Tensor& x) {
    context->save_for_backward({x0, h});
    return primitives(x).elements.multiply_add(x0, h, x);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    return {primitives(dy).elements.multiply_add(dy, saved[kH], {}),
            primitives(dy).elements.multiply_add(dy, saved[kX0], {}), dy};
  }
};

struct SideBySideFunction : torch::autograd::Function<SideBySideFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a, const at::Tensor& b) {
    context->saved_data["width"] = a.size(1);
    return at::cat({a, b}, 1);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor& dy = gradients[0];
    const std::int64_t width = context->saved_data.at("width").toInt();
    const auto part = [&](std::size_t input, std::int64_t begin, std::int64_t columns) {
      if (!context->needs_input_grad(input)) return at::Tensor();
      return dy.narrow(1, begin, columns).contiguous();
    };
    return {part(0, 0, width), part(1, width, dy.size(1) - width)};
  }
};

}  // namespace

at::Tensor pairwise_dots(const at::Tensor& first, const at::Tensor& rest, std::int64_t width) {
  return PairwiseDotsFunction::apply(rest, if_defined(first), width);
}

at::Tensor cross(const at::Tensor& x0, const at::Tensor& h, const at::Tensor& x) {
  return CrossFunction::apply(x0, h, x);
}

at::Tensor side_by_side(const at::Tensor& a, const at::Tensor& b) {
  return SideBySideFunction::apply(a, b);
}

}  // namespace strata
