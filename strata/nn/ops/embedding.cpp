#include "strata/nn/ops/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/token_embedding.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// The positions of the tokens that the rank has of each sample.
at::Tensor own_positions(const at::Tensor& positions, std::int64_t part, std::int64_t length) {
  return positions.narrow(0, part * length, length);
}

struct AddPositionsFunction : torch::autograd::Function<AddPositionsFunction> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, const at::Tensor& positions,
                            int part) {
    context->save_for_backward({positions});
    context->saved_data["part"] = part;
    context->mark_dirty({x});
    primitives(x).add_positions(x, own_positions(positions, part, x.size(1)));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor positions = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    primitives(dy).add_position_gradients(
        dy, own_positions(positions.grad(), context->saved_data["part"].toInt(), dy.size(1)));
    return {dy, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight,
                     const at::Tensor& positions, const TensorParallel* group) {
  const int part = group && group->sequence() ? group->rank() : 0;
  return AddPositionsFunction::apply(token_embedding(tokens, weight, group), positions, part);
}

}  // namespace strata
