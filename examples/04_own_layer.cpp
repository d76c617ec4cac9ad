// Runs user-defined layers on three pipeline stages: weights, shapes and a forward are enough.
//   build/release/04_own_layer
//   step   1  loss 0.146
//   step 300  loss 0.000
#include <ATen/ops/addmm.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/rand.h>

#include <cstdio>

#include "strata/comm/ranks.h"
#include "strata/train/trainer.h"

using namespace strata;
using Context = ForwardContext;
using Specs = std::span<const TensorSpec>;
using Tensors = std::span<const at::Tensor>;

struct Dense final : Layer {  // gelu(x weightᵀ + bias)
  Dense(std::int64_t in, std::int64_t out) : in(in), out(out) {}
  std::vector<WeightSpec> weights() const override {
    return {{.name = "weight", .shape = {out, in}, .init = {Init::Kind::kNormal, 0.3}},
            {.name = "bias", .shape = {out}}};
  }
  std::vector<TensorSpec> outputs(Specs x) const override { return {{{x[0].shape[0], out}}}; }
  std::vector<at::Tensor> forward(const Context&, Tensors weights, Tensors x) const override {
    const auto [weight, bias] = named<2>(weights);
    return {at::gelu(at::addmm(bias, x[0], weight.t()))};
  }
  std::int64_t in, out;
};

struct SquaredError final : Layer {  // adds to the loss, returns the start of the backward
  bool is_loss() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(Specs) const override { return {{}}; }
  std::vector<at::Tensor> forward(const Context& context, Tensors, Tensors x) const override {
    const at::Tensor sum = (x[0].sum(1) - x[1]).square().sum();
    context.loss->sum += sum.item<double>();
    return {sum * context.loss_scale};
  }
};

int main() {
  Sequential model({"points", "products"});
  model.add("first", std::make_shared<Dense>(2, 32), {"points"});
  model.add("middle", std::make_shared<Dense>(32, 32));
  model.add("last", std::make_shared<Dense>(32, 16));
  model.add("loss", std::make_shared<SquaredError>(), {"x", "products"}, {"loss"});
  const at::Tensor x = at::rand({64, 2}), products = x.select(1, 0) * x.select(1, 1);
  const StepPlan plan = plan_steps(model, {.partition = {{0, 1, 2, 4}}, .micro_batch = 16});
  run_thread_ranks({.ranks = 3}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group);
    trainer.initialise();
    for (int step = 1; step <= 300; ++step) {
      const double loss = trainer.step({{x, products}, 64, 64}, /*learning_rate=*/3e-3).loss;
      if (group.rank() == 0 && step % 299 == 1) std::printf("step %3d  loss %.3f\n", step, loss);
    }
  });
}
