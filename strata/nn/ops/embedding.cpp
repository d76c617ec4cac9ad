// Positions are added in place: the rows are fresh, and no backward saves them.
#include "strata/nn/ops/embedding.h"

#include "strata/comm/tensor_parallel.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

// The first token whose row is on this rank.
std::int64_t first_row(const at::Tensor& weight, const TensorParallel* group) {
  return group ? group->rank() * weight.size(0) : 0;
}

// The positions of this rank's tokens of each sample.
at::Tensor own_positions(const at::Tensor& positions, std::int64_t part, std::int64_t length) {
  return positions.narrow(0, part * length, length);
}

struct TokenEmbeddingFunction : torch::autograd::Function<TokenEmbeddingFunction> {
  enum Saved { kTokens, kWeight };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& weight, const TensorParallel* group) {
    context->save_for_backward({tokens, weight});
    save_pointer(context, "group", group);
    return leave_forward(group,
                         primitives(weight).rows.gather(tokens, weight, first_row(weight, group)));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &tokens = saved[kTokens], &weight = saved[kWeight];
    const auto* group = saved_pointer<const TensorParallel>(context, "group");
    const at::Tensor dy = leave_backward(group, gradients[0].contiguous());
    primitives(dy).rows.add_rows(tokens, dy, weight.grad(), first_row(weight, group));
    return {{}, {}, {}};
  }
};

struct AddPositionsFunction : torch::autograd::Function<AddPositionsFunction> {
  enum Saved { kPositions };

  static at::Tensor forward(AutogradContext* context, at::Tensor x, const at::Tensor& positions,
                            int part) {
    context->save_for_backward({positions});
    context->saved_data["part"] = part;
    context->mark_dirty({x});
    primitives(x).rows.add_positions(x, own_positions(positions, part, x.size(1)));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::int64_t part = context->saved_data.at("part").toInt();
    const at::Tensor dy = gradients[0].contiguous();
    primitives(dy).rows.add_position_gradients(
        dy, own_positions(saved[kPositions].grad(), part, dy.size(1)));
    return {dy, {}, {}};
  }
};

}  // namespace

at::Tensor token_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                           const TensorParallel* group) {
  return TokenEmbeddingFunction::apply(tokens, weight, group);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight,
                     const at::Tensor& positions, const TensorParallel* group) {
  const int part = group && group->sequence() ? group->rank() : 0;
  return AddPositionsFunction::apply(token_embedding(tokens, weight, group), positions, part);
}

}  // namespace strata
