#include "strata/nn/ops/layer_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/nn/kernels/kernels.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor layer_norm_forward(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              NormStatistics& statistics) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  at::Tensor y = at::empty_like(x);
  statistics.mean = at::empty({rows}, at::kFloat);
  statistics.rstd = at::empty({rows}, at::kFloat);
  const at::Tensor scale = in_fp32(gain), shift = in_fp32(bias);
  const float* scales = scale.const_data_ptr<float>();
  const float* shifts = shift.const_data_ptr<float>();
  float* means = statistics.mean.data_ptr<float>();
  float* rstds = statistics.rstd.data_ptr<float>();
  in_fp32_pieces(rows, {x}, {y}, [&](std::int64_t first, std::int64_t count, auto from, auto to) {
    parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
      kernels::layer_norm(from[0] + begin * columns, scales, shifts, to[0] + begin * columns,
                          means + first + begin, rstds + first + begin, end - begin, columns,
                          kNormEpsilon);
    });
  });
  return y;
}

at::Tensor layer_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                            const NormStatistics& statistics) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  at::Tensor y = at::empty_like(x);
  const at::Tensor scale = in_fp32(gain), shift = in_fp32(bias);
  const float* scales = scale.const_data_ptr<float>();
  const float* shifts = shift.const_data_ptr<float>();
  const float* means = statistics.mean.const_data_ptr<float>();
  const float* rstds = statistics.rstd.const_data_ptr<float>();
  in_fp32_pieces(rows, {x}, {y}, [&](std::int64_t first, std::int64_t count, auto from, auto to) {
    parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
      kernels::layer_norm_again(from[0] + begin * columns, scales, shifts, means + first + begin,
                                rstds + first + begin, to[0] + begin * columns, end - begin,
                                columns);
    });
  });
  return y;
}

at::Tensor layer_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                               const at::Tensor& bias, const NormStatistics& statistics) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  const at::Tensor scale = in_fp32(gain);
  const float* scales = scale.const_data_ptr<float>();
  float* dgain = gain.grad().data_ptr<float>();
  float* dbias = bias.grad().data_ptr<float>();
  in_fp32_pieces(
      rows, {x, dy}, {dy}, [&](std::int64_t first, std::int64_t count, auto from, auto to) {
        const float* mean = statistics.mean.const_data_ptr<float>() + first;
        const float* rstd = statistics.rstd.const_data_ptr<float>() + first;
        parallel_columns(count, columns, [&](std::int64_t begin, std::int64_t end) {
          kernels::layer_norm_weight_gradient(from[0], from[1], mean, rstd, dgain, dbias, count,
                                              columns, begin, end);
        });
        // In place: each row is read in full before it is written.
        parallel_rows(count, columns, [&](std::int64_t begin, std::int64_t end) {
          kernels::layer_norm_backward(from[0] + begin * columns, from[1] + begin * columns, scales,
                                       mean + begin, rstd + begin, to[0] + begin * columns,
                                       end - begin, columns);
        });
      });
  return dy;
}

namespace {

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const at::Tensor& bias) {
    NormStatistics statistics;
    at::Tensor y = layer_norm_forward(x, gain, bias, statistics);
    context->save_for_backward({x, gain, bias, statistics.mean, statistics.rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    // A copy: the incoming gradient may have other readers.
    return {layer_norm_backward(saved[0], gradients[0].clone(), saved[1], saved[2],
                                {saved[3], saved[4]}),
            {},
            {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias) {
  return LayerNormFunction::apply(x, gain, bias);
}

}  // namespace strata
