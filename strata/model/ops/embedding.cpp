#include "strata/model/ops/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/model/ops/parallel.h"
#include "strata/model/ops/token_embedding.h"
#include "strata/model/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// Adds rows of positions to those of value [B, T', C], or the other way round, in ascending order;
// the value's first row has position `first`. Threads share the columns, so every sum is made by
// one thread, in order.
template <bool kToPositions>
void add_rows(const float* from, float* to, at::IntArrayRef value, std::int64_t first) {
  const std::int64_t length = value[1], width = value[2], count = value[0] * length;
  parallel_columns(count, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i * width, place = (first + i % length) * width;
      for (std::int64_t c = begin; c < end; ++c)
        to[(kToPositions ? place : row) + c] += from[(kToPositions ? row : place) + c];
    }
  });
}

struct AddPositionsFunction : torch::autograd::Function<AddPositionsFunction> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, const at::Tensor& positions,
                            int part) {
    context->save_for_backward({positions});
    context->saved_data["part"] = part;
    context->mark_dirty({x});
    add_rows<false>(positions.const_data_ptr<float>(), x.data_ptr<float>(), x.sizes(),
                    part * x.size(1));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor positions = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    add_rows<true>(dy.const_data_ptr<float>(), positions.grad().data_ptr<float>(), dy.sizes(),
                   context->saved_data["part"].toInt() * dy.size(1));
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
