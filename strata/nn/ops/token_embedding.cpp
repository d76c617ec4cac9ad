#include "strata/nn/ops/token_embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/primitives.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// The first token whose row this rank has.
std::int64_t first_row(const at::Tensor& weight, const TensorParallel* group) {
  return group ? group->rank() * weight.size(0) : 0;
}

struct TokenEmbeddingFunction : torch::autograd::Function<TokenEmbeddingFunction> {
  enum Saved { kTokens, kWeight };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& weight, const TensorParallel* group) {
    context->save_for_backward({tokens, weight});
    context->saved_data["group"] = keep_pointer(group);
    return leave_forward(group, primitives(weight).rows(tokens, weight, first_row(weight, group)));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &tokens = saved[kTokens], &weight = saved[kWeight];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = leave_backward(group, gradients[0].contiguous());
    primitives(dy).add_rows(tokens, dy, weight.grad(), first_row(weight, group));
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor token_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                           const TensorParallel* group) {
  return TokenEmbeddingFunction::apply(tokens, weight, group);
}

}  // namespace strata
