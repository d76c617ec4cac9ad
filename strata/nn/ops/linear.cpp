// The backward allocates in an order that keeps few tensors alive at once: a plan counts them
// (Layer::bytes of the models).
#include "strata/nn/ops/linear.h"

#include <ATen/ops/empty.h>

#include "strata/comm/tensor_parallel.h"
#include "strata/nn/graph/deferred_gradients.h"
#include "strata/nn/ops/saved_values.h"

namespace strata {

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

void accumulate_weight_gradient(const at::Tensor& weight, const at::Tensor& dy,
                                const at::Tensor& x) {
  primitives(x).products.add_weight_gradient(weight.grad(), dy, x);
}

void accumulate_bias_gradient(const at::Tensor& bias, const at::Tensor& dy) {
  primitives(dy).products.add_column_sums(bias.grad(), dy);
}

at::Tensor input_gradient_through(Activation kind, const at::Tensor& x, const at::Tensor& dy,
                                  const at::Tensor& weight, at::Tensor* again) {
  const Primitives& compute = primitives(x);
  at::Tensor dx = compute.products.fused_input_gradient(kind, x, dy, weight);
  if (dx.defined()) {
    if (again) *again = compute.elements.activate(kind, x);
    return dx;
  }
  dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  compute.products.input_gradient(dx, dy, weight);
  return compute.elements.activation_gradient(kind, x, dx, again);
}

namespace {

// The operation after a product; if the product also computes it, the result goes to `made`.
struct Ahead {
  Activation kind;
  at::Tensor* made;
};

// x weightᵀ, plus the bias if it is defined.
at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   const std::optional<Ahead>& ahead = std::nullopt) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const Primitives& compute = primitives(x);
  if (!ahead) return compute.products.product(as_rows(x), weight, bias).view(shape);
  at::Tensor y =
      compute.products.product_and_activation(ahead->kind, as_rows(x), weight, bias, *ahead->made);
  if (ahead->made->defined()) *ahead->made = ahead->made->view(shape);
  return y.view(shape);
}

// gradient(weight) += dyᵀ x, and gradient(bias) += column sums of dy if there is a bias.
void accumulate_gradients(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& dy,
                          const at::Tensor& x) {
  if (!bias.defined()) return accumulate_weight_gradient(weight, dy, x);
  primitives(x).products.add_linear_gradients(weight.grad(), bias.grad(), dy, x);
}

// dy weight
at::Tensor input_gradient(const at::Tensor& dy, const at::Tensor& weight) {
  at::Tensor dx = at::empty({dy.size(0), weight.size(1)}, dy.options());
  primitives(dy).products.input_gradient(dx, dy, weight);
  return dx;
}

// Sums the ranks' products, then adds the bias.
at::Tensor leave(const TensorParallel* group, at::Tensor partial, const at::Tensor& bias) {
  at::Tensor y = leave_forward(group, std::move(partial));
  if (bias.defined()) primitives(y).elements.add_bias(y, bias);
  return y;
}

// The gradient after a row-parallel product, whole and as rows. With a group the bias was added to
// this rank's part, so its gradient is computed here and `bias` becomes undefined; otherwise the
// caller computes it.
at::Tensor whole_gradient_rows(const TensorParallel* group, const at::Tensor& gradient,
                               at::Tensor& bias) {
  const at::Tensor dy = gradient.contiguous();
  if (group && bias.defined()) {
    accumulate_bias_gradient(bias, as_rows(dy));
    bias.reset();
  }
  return as_rows(leave_backward(group, dy));
}

const TensorParallel* saved_group(AutogradContext* context) {
  return saved_pointer<const TensorParallel>(context, "group");
}

// Returns the gradient at x; adds those of the norm's weights to their leaves. Overwrites dy: a
// separate norm operator works on a copy, because the incoming gradient may have other readers.
at::Tensor norm_backward(const at::Tensor& x, at::Tensor dy, const Norm& norm,
                         const NormStatistics& statistics) {
  NormSums sums{norm.gain.grad()};
  if (norm.bias.defined()) sums.bias = norm.bias.grad();
  primitives(x).norms.norm_gradient(x, dy, norm, statistics, sums);
  return dy;
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  enum Saved { kX, kGain, kBias, kMean, kRstd };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const std::optional<at::Tensor>& bias, double epsilon) {
    const Norm norm{gain, bias.value_or(at::Tensor()), epsilon};
    NormStatistics statistics;
    at::Tensor y = primitives(x).norms.norm(x, norm, statistics);
    context->save_for_backward({x, gain, norm.bias, statistics.mean, statistics.rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor dy = gradients[0].clone(at::MemoryFormat::Contiguous);
    return {norm_backward(saved[kX], dy, {.gain = saved[kGain], .bias = saved[kBias]},
                          {saved[kMean], saved[kRstd]}),
            {},
            {},
            {}};
  }
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  enum Saved { kX, kWeight, kBias };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias_input, RowParallel split,
                            const RemadePtr& again) {
    const at::Tensor bias = bias_input.value_or(at::Tensor());
    context->save_for_backward({again ? at::Tensor() : x, weight, bias});
    save_remade(context, again);
    save_pointer(context, "group", split.group);
    if (!split.group) return product(x, weight, bias);
    return leave(split.group, product(x, weight, {}), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const RemadePtr again = saved_remade(context);
    const at::Tensor x = again ? again->get().back() : saved[kX];
    const at::Tensor& weight = saved[kWeight];
    at::Tensor bias = saved[kBias];
    const at::Tensor dy = whole_gradient_rows(saved_group(context), gradients[0], bias);
    add_weight_gradients(
        [=, x = x.detach()] { accumulate_gradients(weight, bias, dy, as_rows(x)); });
    if (!context->needs_input_grad(0)) return {{}, {}, {}, {}, {}};
    return {input_gradient(dy, weight).view(x.sizes()), {}, {}, {}, {}};
  }
};

struct NormLinearFunction : torch::autograd::Function<NormLinearFunction> {
  enum Saved { kX, kGain, kNormBias, kMean, kRstd, kWeight, kBias, kNormed };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gain,
                            const std::optional<at::Tensor>& norm_bias, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias_input, double epsilon, bool keep,
                            ColumnParallel split, const std::optional<Ahead>& ahead) {
    const Norm norm{gain, norm_bias.value_or(at::Tensor()), epsilon};
    const at::Tensor bias = bias_input.value_or(at::Tensor());
    NormStatistics statistics;
    const at::Tensor normed = primitives(x).norms.norm(x, norm, statistics);
    context->save_for_backward({x, gain, norm.bias, statistics.mean, statistics.rstd, weight, bias,
                                keep ? normed : at::Tensor()});
    save_pointer(context, "group", split.group);
    return product(enter_forward(split.group, normed), weight, bias, ahead);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[kX], &weight = saved[kWeight], &bias = saved[kBias];
    const Norm norm{.gain = saved[kGain], .bias = saved[kNormBias]};
    const NormStatistics statistics{saved[kMean], saved[kRstd]};
    const TensorParallel* group = saved_group(context);
    const at::Tensor dy = as_rows(gradients[0].contiguous());
    add_weight_gradients([=, x = x.detach(), kept = saved[kNormed]] {
      const at::Tensor normed = enter_forward(
          group, kept.defined() ? kept : primitives(x).norms.norm_again(x, norm, statistics));
      accumulate_gradients(weight, bias, dy, as_rows(normed));
    });
    std::vector<std::int64_t> entered = gradients[0].sizes().vec();  // of the whole input
    entered.back() = weight.size(1);
    at::Tensor dx = enter_backward(group, input_gradient(dy, weight).view(entered));
    dx = norm_backward(x, std::move(dx), norm, statistics);
    return {dx.view(x.sizes()), {}, {}, {}, {}, {}, {}, {}, {}};
  }
};

struct ActivationFunction : torch::autograd::Function<ActivationFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Activation activation) {
    context->save_for_backward({x});
    context->saved_data["activation"] = static_cast<std::int64_t>(activation);
    return primitives(x).elements.activate(activation, x);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const auto activation = static_cast<Activation>(context->saved_data.at("activation").toInt());
    // A copy, which becomes the result, because the incoming gradient may have other readers.
    const at::Tensor dy = gradients[0].clone(at::MemoryFormat::Contiguous);
    return {primitives(x).elements.activation_gradient(activation, x, dy, nullptr), {}};
  }
};

struct ActivationLinearFunction : torch::autograd::Function<ActivationLinearFunction> {
  enum Saved { kX, kWeight, kBias, kActivated };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias_input, Activation activation,
                            bool keep, RowParallel split, at::Tensor* made,
                            const RemadePtr& again) {
    const at::Tensor bias = bias_input.value_or(at::Tensor());
    // Backward recomputes `activated` with other bits than the fused product: gradients must not
    // depend on `keep`.
    const bool is_made = made && made->defined();
    keep = keep && !is_made;
    at::Tensor activated =
        is_made ? std::move(*made) : primitives(x).elements.activate(activation, x);
    context->save_for_backward(
        {again ? at::Tensor() : x, weight, bias, keep ? activated : at::Tensor()});
    save_remade(context, again);
    context->saved_data["activation"] = static_cast<std::int64_t>(activation);
    save_pointer(context, "group", split.group);
    if (!split.group) return product(activated, weight, bias);
    at::Tensor partial = product(activated, weight, {});
    activated.reset();  // before the buffers of the sum
    return leave(split.group, std::move(partial), bias);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[kWeight], &kept = saved[kActivated];
    const auto activation = static_cast<Activation>(context->saved_data.at("activation").toInt());
    at::Tensor bias = saved[kBias];
    const at::Tensor dy = whole_gradient_rows(saved_group(context), gradients[0], bias);
    const RemadePtr again = saved_remade(context);
    const at::Tensor x = again ? again->take().back() : saved[kX];
    const auto accumulate_with = [&](const at::Tensor& activated) {
      add_weight_gradients([=] { accumulate_gradients(weight, bias, dy, as_rows(activated)); });
    };
    if (kept.defined()) accumulate_with(kept);
    at::Tensor activated;
    const at::Tensor dx = input_gradient_through(activation, as_rows(x), dy, weight,
                                                 kept.defined() ? nullptr : &activated);
    if (!kept.defined()) accumulate_with(activated);
    return {dx.view(x.sizes()), {}, {}, {}, {}, {}, {}, {}};
  }
};

// The output of norm_linear() without a graph.
at::Tensor norm_product(const at::Tensor& x, const Norm& norm, const Affine& affine,
                        ColumnParallel split, const std::optional<Ahead>& ahead) {
  NormStatistics unused;
  return product(enter_forward(split.group, primitives(x).norms.norm(x, norm, unused)),
                 affine.weight, affine.bias, ahead);
}

}  // namespace

at::Tensor normalise(const at::Tensor& x, const Norm& norm) {
  return NormFunction::apply(x, norm.gain, if_defined(norm.bias), norm.epsilon);
}

at::Tensor activate(Activation activation, const at::Tensor& x) {
  return ActivationFunction::apply(x, activation);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  RowParallel split, const RemadePtr& again) {
  return LinearFunction::apply(x, weight, if_defined(bias), split, again);
}

at::Tensor norm_linear(const at::Tensor& x, const Norm& norm, const at::Tensor& weight,
                       const at::Tensor& bias, bool keep, ColumnParallel split) {
  return NormLinearFunction::apply(x, norm.gain, if_defined(norm.bias), weight, if_defined(bias),
                                   norm.epsilon, keep, split, std::optional<Ahead>());
}

at::Tensor activation_linear(Activation activation, const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias, bool keep, RowParallel split) {
  at::Tensor* const nothing = nullptr;
  return ActivationLinearFunction::apply(x, weight, if_defined(bias), activation, keep, split,
                                         nothing, RemadePtr());
}

at::Tensor norm_linear_again(const at::Tensor& x, const Norm& norm, const Affine& affine,
                             ColumnParallel split) {
  return norm_product(x, norm, affine, split, std::nullopt);
}

at::Tensor feed_forward(const at::Tensor& x, const Norm& norm, const Affine& in,
                        Activation activation, const Affine& out, Recompute recompute,
                        const TensorParallel* group) {
  at::Tensor made;
  const bool keep = recompute == Recompute::kNone;
  RemadePtr again;
  // The same product as in forward, which may be fused: another one may have other bits.
  if (recompute >= Recompute::kProducts)
    again = c10::make_intrusive<Remade>([=, x = x.detach()] {
      at::Tensor unused;
      return std::vector{norm_product(x, norm, in, {group}, Ahead{activation, &unused})};
    });
  return ActivationLinearFunction::apply(
      NormLinearFunction::apply(x, norm.gain, if_defined(norm.bias), in.weight, if_defined(in.bias),
                                norm.epsilon, keep, ColumnParallel{group},
                                std::optional<Ahead>({activation, &made})),
      out.weight, if_defined(out.bias), activation, keep, RowParallel{group}, &made, again);
}

}  // namespace strata
