#include "strata/model/ops/embedding.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/model/ops/parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& weight, const at::Tensor& positions) {
    context->save_for_backward({tokens, weight, positions});
    const std::int64_t length = tokens.size(1), width = weight.size(1);
    at::Tensor y = at::empty({tokens.size(0), length, width}, weight.options());
    const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
    const float* rows = weight.const_data_ptr<float>();
    const float* position = positions.const_data_ptr<float>();
    float* to = y.data_ptr<float>();
    parallel_rows(tokens.numel(), width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float* row = rows + token[i] * width;
        const float* place = position + i % length * width;
        for (std::int64_t c = 0; c < width; ++c) to[i * width + c] = row[c] + place[c];
      }
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& tokens = saved[0];
    const at::Tensor dy = gradients[0].contiguous();
    const std::int64_t length = tokens.size(1), width = dy.size(2), count = tokens.numel();
    const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
    const float* from = dy.const_data_ptr<float>();
    float* rows = saved[1].grad().data_ptr<float>();
    float* positions = saved[2].grad().data_ptr<float>();
    // Threads share the columns, so every sum is made by one thread, in order.
    parallel_columns(count, width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = 0; i < count; ++i) {
        float* row = rows + token[i] * width;
        float* place = positions + i % length * width;
        for (std::int64_t c = begin; c < end; ++c) {
          row[c] += from[i * width + c];
          place[c] += from[i * width + c];
        }
      }
    });
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight,
                     const at::Tensor& positions) {
  return EmbeddingFunction::apply(tokens, weight, positions);
}

}  // namespace strata
