#include "strata/nn/ops/embedding.h"

#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/parallel.h"
#include "strata/nn/ops/token_embedding.h"
#include "strata/nn/tensor_parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// The positions of the tokens that the rank has of each sample.
at::Tensor own_positions(const at::Tensor& positions, std::int64_t part, std::int64_t length) {
  return positions.narrow(0, part * length, length);
}

// x [B, T', C] += positions [T', C]
void add_positions(const at::Tensor& x, const at::Tensor& positions) {
  const std::int64_t length = x.size(1), width = x.size(2);
  const at::Tensor wide = in_fp32(positions);
  const float* position = wide.const_data_ptr<float>();
  in_fp32_pieces(x.size(0) * length, {x}, {x},
                 [&](std::int64_t first, std::int64_t count, auto from, auto to) {
                   parallel_rows(count, width, [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       const float* add = position + (first + i) % length * width;
                       for (std::int64_t c = 0; c < width; ++c)
                         to[0][i * width + c] = from[0][i * width + c] + add[c];
                     }
                   });
                 });
}

// sum [T', C] += dy [B, T', C], in ascending order. Threads share the columns, so every sum is made
// by one thread, in order.
void add_position_gradients(const at::Tensor& dy, const at::Tensor& sum) {
  const std::int64_t length = dy.size(1), width = dy.size(2);
  float* sums = sum.data_ptr<float>();
  in_fp32_pieces(dy.size(0) * length, {dy}, {},
                 [&](std::int64_t first, std::int64_t count, auto from, auto) {
                   parallel_columns(count, width, [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = 0; i < count; ++i) {
                       float* to = sums + (first + i) % length * width;
                       for (std::int64_t c = begin; c < end; ++c) to[c] += from[0][i * width + c];
                     }
                   });
                 });
}

struct AddPositionsFunction : torch::autograd::Function<AddPositionsFunction> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x, const at::Tensor& positions,
                            int part) {
    context->save_for_backward({positions});
    context->saved_data["part"] = part;
    context->mark_dirty({x});
    add_positions(x, own_positions(positions, part, x.size(1)));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor positions = context->get_saved_variables()[0];
    const at::Tensor dy = gradients[0].contiguous();
    add_position_gradients(
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
