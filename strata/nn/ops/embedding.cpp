// Positions are added in place: the rows are fresh, and no backward saves them.
#include "strata/nn/ops/embedding.h"

#include <ATen/ops/cat.h>

#include <array>
#include <vector>

#include "strata/comm/context_parallel.h"
#include "strata/comm/tensor_parallel.h"
#include "strata/nn/ops/saved_values.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

// The first token whose row is on this rank.
std::int64_t first_row(const at::Tensor& weight, const TensorParallel* group) {
  return group ? group->rank() * weight.size(0) : 0;
}

// The positions of this rank's tokens of each sample: the second range may be empty.
using Positions = std::array<TokenRange, 2>;

Positions own_positions(std::int64_t length, const TensorParallel* group,
                        const ContextParallel* context) {
  const bool divided = group && group->sequence();
  const int part = divided ? group->rank() : 0, parts = divided ? group->size() : 1;
  const ContextSplit whole;
  const ContextSplit& split = context ? context->split() : whole;
  return own_tokens(split, context ? context->rank() : 0, length * parts * split.ranks, part,
                    parts);
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
                            const Positions& own) {
    context->save_for_backward({positions});
    context->saved_data["first"] = std::vector{own[0].first, own[1].first};
    context->saved_data["count"] = std::vector{own[0].count, own[1].count};
    context->mark_dirty({x});
    const auto rows = [&](const TokenRange& range) {
      return positions.narrow(0, range.first, range.count);
    };
    primitives(x).rows.add_positions(
        x, own[1].count == 0 ? rows(own[0]) : at::cat({rows(own[0]), rows(own[1])}));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const std::vector<std::int64_t> first = context->saved_data.at("first").toIntVector(),
                                    count = context->saved_data.at("count").toIntVector();
    const at::Tensor dy = gradients[0].contiguous();
    std::int64_t row = 0;
    for (std::size_t i = 0; i < count.size(); row += count[i++]) {
      if (count[i] == 0) continue;
      const at::Tensor sum = saved[kPositions].grad().narrow(0, first[i], count[i]);
      if (count[i] == dy.size(1)) {
        primitives(dy).rows.add_position_gradients(dy, sum);
        continue;
      }
      for (std::int64_t sample = 0; sample < dy.size(0); ++sample)
        primitives(dy).rows.add_position_gradients(dy.narrow(0, sample, 1).narrow(1, row, count[i]),
                                                   sum);
    }
    return {dy, {}, {}};
  }
};

}  // namespace

at::Tensor token_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                           const TensorParallel* group) {
  return TokenEmbeddingFunction::apply(tokens, weight, group);
}

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight,
                     const at::Tensor& positions, const TensorParallel* group,
                     const ContextParallel* context_parallel) {
  const at::Tensor x = token_embedding(tokens, weight, group);
  return AddPositionsFunction::apply(x, positions,
                                     own_positions(x.size(1), group, context_parallel));
}

}  // namespace strata
