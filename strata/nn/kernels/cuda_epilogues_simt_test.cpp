// Compares products with epilogues with the same products followed by kernels; then whole operators
// and their gradients. Runs in the same programs as cuda_primitives_simt_test.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/simt/simt_machine.h"
#include "strata/nn/cuda/cuda_primitives.h"
#include "strata/nn/cuda/formula_libraries_test.h"
#include "strata/nn/ops/linear.h"

namespace strata {
namespace {

at::Device tried_device() {
  return simt::on_gpu() ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

// Sets the primitives of operators while the object lives.
class With {
 public:
  explicit With(bool epilogues) {
    if (simt::on_gpu()) {
      multiply_by(epilogues ? ProductLibrary::kCublasLt : ProductLibrary::kAten);
    } else {
      libraries_ = std::make_unique<FormulaLibraries>(epilogues);
      primitives_ = std::make_unique<CudaPrimitives>(*libraries_);
      scope_.emplace(primitives_->all());
    }
  }
  ~With() {
    if (simt::on_gpu()) multiply_by(ProductLibrary::kAten);
  }
  /// A real library decides for itself which epilogues it computes.
  void expect_made(int epilogues) const {
    if (libraries_) EXPECT_EQ(libraries_->epilogues(), epilogues);
  }

 private:
  std::unique_ptr<FormulaLibraries> libraries_;
  std::unique_ptr<CudaPrimitives> primitives_;
  std::optional<HostPrimitivesScope> scope_;
};

class Epilogues : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(4);
    try {
      const With with(true);
    } catch (const UserError&) {
      GTEST_SKIP() << "this build lacks cuBLASLt's headers";
    }
  }
  static at::Tensor random(at::IntArrayRef shape, double scale = 1) {
    return (at::randn(shape) * scale).to(GetParam()).to(tried_device());
  }
  static at::Tensor floats(at::IntArrayRef shape) { return at::randn(shape).to(tried_device()); }
  static void expect(const at::Tensor& ours, const at::Tensor& right, const char* what,
                     double roundings = 1) {
    ASSERT_EQ(ours.sizes(), right.sizes()) << what;
    ASSERT_EQ(ours.scalar_type(), right.scalar_type()) << what;
    const double unit = GetParam() == at::kFloat ? 2e-6 : GetParam() == at::kHalf ? 1e-3 : 8e-3;
    const double error = (fp64(ours) - fp64(right)).abs().max().item<double>();
    EXPECT_LE(error, roundings * unit * fp64(right).abs().max().item<double>()) << what;
  }
};

TEST_P(Epilogues, EqualKernelsAfterProducts) {
  const std::int64_t rows = 24, in = 16, out = 40;
  const at::Tensor x = random({rows, in}), weight = random({out, in}), bias = random({out}),
                   dy = random({rows, out});
  struct Made {
    at::Tensor y, activated, dx, again, sum, bias_sum;
  };
  const at::Tensor sum = floats({out, in}), bias_sum = floats({out});
  const auto make = [&](bool epilogues) {
    const With with(epilogues);
    const Primitives& compute = primitives(x);
    Made made{.sum = sum.clone(), .bias_sum = bias_sum.clone()};
    made.y =
        compute.products.product_and_activation(Activation::kGelu, x, weight, bias, made.activated);
    made.dx = input_gradient_through(Activation::kGelu, x, dy, weight, &made.again);
    compute.products.add_linear_gradients(made.sum, made.bias_sum, dy, x);
    with.expect_made(epilogues ? 3 : 0);
    return made;
  };
  const Made plain = make(false), fused = make(true);
  EXPECT_FALSE(plain.activated.defined());
  expect(fused.y, plain.y, "product");
  if (fused.activated.defined())
    expect(fused.activated, primitives(x).elements.activate(Activation::kGelu, plain.y),
           "activated", 2);
  expect(fused.dx, plain.dx, "input gradient", 2);
  EXPECT_TRUE(at::equal(fused.again, plain.again));
  expect(fused.sum, plain.sum, "weight gradient");
  expect(fused.bias_sum, plain.bias_sum, "bias gradient");
}

// A library without epilogues needs no memory beyond that of a product.
TEST_P(Epilogues, UseNoMemoryIfUnsupported) {
  if (simt::on_gpu()) GTEST_SKIP() << "of the host's account";
  install_accounting_allocator();
  MemoryAccount account("products");
  const at::Tensor x = random({24, 16}), weight = random({40, 16}), bias = random({40});
  FormulaLibraries libraries;
  const CudaProductPrimitives compute(libraries);
  const AccountScope scope(account);
  const auto peak_of = [&](const auto& product) {
    account.reset_peak();
    product();
    return account.peak_bytes();
  };
  at::Tensor made;
  EXPECT_EQ(
      peak_of([&] { compute.product_and_activation(Activation::kGelu, x, weight, bias, made); }),
      peak_of([&] { compute.product(x, weight, bias); }));
}

// Without a bias, or for other activations, there is no epilogue.
TEST_P(Epilogues, ApplyOnlyToGeluWithBias) {
  const With with(true);
  const at::Tensor x = random({8, 16}), weight = random({24, 16}), bias = random({24}),
                   dy = random({8, 24});
  at::Tensor made;
  primitives(x).products.product_and_activation(Activation::kGelu, x, weight, {}, made);
  EXPECT_FALSE(made.defined());
  primitives(x).products.product_and_activation(Activation::kRelu, x, weight, bias, made);
  EXPECT_FALSE(made.defined());
  input_gradient_through(Activation::kRelu, x, dy, weight, nullptr);
  with.expect_made(0);
}

// A norm, two products and an activation between them, with all gradients.
struct FeedForward {
  std::vector<at::Tensor>
      leaves;  // x, gain and bias of the norm, then weight and bias of each product

  std::vector<at::Tensor> run(Recompute recompute, const at::Tensor& dy) const {
    std::vector<at::Tensor> own;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      own.push_back(leaves[i].clone().requires_grad_(true));
      if (i > 0)
        own[i].mutable_grad() = at::ones(leaves[i].sizes(), leaves[i].options().dtype(at::kFloat));
    }
    const at::Tensor y = feed_forward(own[0], {own[1], own[2]}, {own[3], own[4]}, Activation::kGelu,
                                      {own[5], own[6]}, recompute);
    y.backward(dy);
    std::vector<at::Tensor> made = {y.detach()};
    for (const at::Tensor& leaf : own) made.push_back(leaf.grad());
    return made;
  }
};

TEST_P(Epilogues, ChangeNoOperatorOrGradient) {
  const std::int64_t width = 16, inner = 64;
  const FeedForward layer{{random({2, 12, width}), random({width}), random({width}),
                           random({inner, width}, 0.3), random({inner}),
                           random({width, inner}, 0.1), random({width})}};
  const at::Tensor dy = random({2, 12, width});
  const char* names[] = {"y", "dx", "gain", "norm bias", "up", "up bias", "down", "down bias"};
  const auto run = [&](bool epilogues, Recompute recompute) {
    const With with(epilogues);
    auto made = layer.run(recompute, dy);
    // GELU, its gradient, and the gradients of two weights with their biases. The product with a
    // GELU may run again.
    const int again = recompute == Recompute::kProducts ? 1 : 0;
    with.expect_made(epilogues ? 4 + again : 0);
    return made;
  };
  const auto plain = run(false, Recompute::kCheap), fused = run(true, Recompute::kCheap),
             kept = run(true, Recompute::kNone), remade = run(true, Recompute::kProducts);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    expect(fused[i], plain[i], names[i], 6);
    // Backward computes the same whatever is kept.
    EXPECT_TRUE(at::equal(fused[i], kept[i])) << names[i];
    EXPECT_TRUE(at::equal(fused[i], remade[i])) << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, Epilogues,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

}  // namespace
}  // namespace strata
