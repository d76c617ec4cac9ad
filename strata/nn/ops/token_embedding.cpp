#include "strata/nn/ops/token_embedding.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>
#include <cstring>

#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/kept_pointer.h"
#include "strata/nn/ops/parallel.h"
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
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& weight, const TensorParallel* group) {
    context->save_for_backward({tokens, weight});
    context->saved_data["group"] = keep_pointer(group);
    const std::int64_t first = first_row(weight, group), count = weight.size(0);
    const std::int64_t width = weight.size(1);
    at::Tensor y = at::empty({tokens.size(0), tokens.size(1), width}, weight.options());
    const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
    const std::int64_t bytes = width * static_cast<std::int64_t>(weight.element_size());
    const auto* rows = static_cast<const std::byte*>(weight.const_data_ptr());
    auto* to = static_cast<std::byte*>(y.data_ptr());
    parallel_rows(tokens.numel(), width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = token[i] - first;
        if (row >= 0 && row < count) {
          std::memcpy(to + i * bytes, rows + row * bytes, bytes);
        } else {
          std::memset(to + i * bytes, 0, bytes);
        }
      }
    });
    return leave_forward(group, std::move(y));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &tokens = saved[0], &weight = saved[1];
    const auto* group = kept_pointer<const TensorParallel>(context->saved_data["group"]);
    const at::Tensor dy = leave_backward(group, gradients[0].contiguous());
    const std::int64_t first = first_row(weight, group), count = weight.size(0);
    const std::int64_t width = weight.size(1), positions = tokens.numel();
    const std::int64_t* token = tokens.const_data_ptr<std::int64_t>();
    float* rows = weight.grad().data_ptr<float>();
    in_fp32_pieces(positions, {dy}, {}, [&](std::int64_t at, std::int64_t n, auto from, auto) {
      // Threads share the columns, so every sum is made by one thread, in order.
      parallel_columns(n, width, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = 0; i < n; ++i) {
          const std::int64_t row = token[at + i] - first;
          if (row < 0 || row >= count) continue;
          const float* gradient = from[0] + i * width;
          for (std::int64_t c = begin; c < end; ++c) rows[row * width + c] += gradient[c];
        }
      });
    });
    return {{}, {}, {}};
  }
};

}  // namespace

at::Tensor token_embedding(const at::Tensor& tokens, const at::Tensor& weight,
                           const TensorParallel* group) {
  return TokenEmbeddingFunction::apply(tokens, weight, group);
}

}  // namespace strata
