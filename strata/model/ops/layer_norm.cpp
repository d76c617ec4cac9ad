#include "strata/model/ops/layer_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "strata/model/kernels/kernels.h"
#include "strata/model/ops/parallel.h"

namespace strata {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor layer_norm_forward(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                              NormStatistics& statistics) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  at::Tensor y = at::empty_like(x);
  statistics.mean = at::empty({rows}, x.options());
  statistics.rstd = at::empty({rows}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.data_ptr<float>();
  float* mean = statistics.mean.data_ptr<float>();
  float* rstd = statistics.rstd.data_ptr<float>();
  parallel_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::layer_norm(from + begin * columns, gain.const_data_ptr<float>(),
                        bias.const_data_ptr<float>(), to + begin * columns, mean + begin,
                        rstd + begin, end - begin, columns, kNormEpsilon);
  });
  return y;
}

at::Tensor layer_norm_again(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias,
                            const NormStatistics& statistics) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  at::Tensor y = at::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = y.data_ptr<float>();
  parallel_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::layer_norm_again(from + begin * columns, gain.const_data_ptr<float>(),
                              bias.const_data_ptr<float>(),
                              statistics.mean.const_data_ptr<float>() + begin,
                              statistics.rstd.const_data_ptr<float>() + begin, to + begin * columns,
                              end - begin, columns);
  });
  return y;
}

at::Tensor layer_norm_backward(const at::Tensor& x, at::Tensor dy, const at::Tensor& gain,
                               const at::Tensor& bias, const NormStatistics& statistics) {
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  const float* from = x.const_data_ptr<float>();
  float* gradient = dy.data_ptr<float>();
  const float* mean = statistics.mean.const_data_ptr<float>();
  const float* rstd = statistics.rstd.const_data_ptr<float>();
  float* dgain = gain.grad().data_ptr<float>();
  float* dbias = bias.grad().data_ptr<float>();
  parallel_columns(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::layer_norm_weight_gradient(from, gradient, mean, rstd, dgain, dbias, rows, columns,
                                        begin, end);
  });
  // In place: each row is read in full before it is written.
  parallel_rows(rows, columns, [&](std::int64_t begin, std::int64_t end) {
    kernels::layer_norm_backward(from + begin * columns, gradient + begin * columns,
                                 gain.const_data_ptr<float>(), mean + begin, rstd + begin,
                                 gradient + begin * columns, end - begin, columns);
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
