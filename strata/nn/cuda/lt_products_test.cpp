// On a GPU: compares products by cuBLASLt with formulas in fp64, and their bits at other addresses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "strata/device/device.h"
#include "strata/nn/cuda/lt_products.h"

namespace strata {
namespace {

at::Tensor fp64(const at::Tensor& x) { return x.cpu().to(at::kDouble); }

class CublasLtProducts : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(1);
    if (!lt_products()) GTEST_SKIP() << "this build lacks cuBLASLt's headers";
  }
  // A part of a larger buffer, `shift` elements from its beginning.
  at::Tensor random(std::int64_t rows, std::int64_t columns, std::int64_t shift) const {
    const at::Tensor buffer = at::randn({rows * columns + shift}).to(GetParam()).to(at::kCUDA);
    return buffer.narrow(0, shift, rows * columns).view({rows, columns});
  }
  void expect(const at::Tensor& ours, const at::Tensor& right, const char* what) const {
    const double tolerance = GetParam() == at::kFloat  ? 2e-6
                             : GetParam() == at::kHalf ? 1e-3
                                                       : 8e-3;
    const double error = (fp64(ours) - right).abs().max().item<double>();
    EXPECT_LE(error, tolerance * right.abs().max().item<double>()) << what;
  }
};

TEST_P(CublasLtProducts, EqualFp64Formulas) {
  const DeviceScope scope({DeviceKind::kCuda, 0});
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{64, 128, 256}, {1, 64, 32}, {100, 40, 24}, {7, 9, 11}}) {
    const at::Tensor x = random(rows, in, 0), w = random(out, in, 0), dy = random(rows, out, 0);
    const at::Tensor bias = at::randn({out}).to(GetParam()).to(at::kCUDA);
    expect(lt_products()->product(x, w, {}), fp64(x).mm(fp64(w).t()), "product");
    expect(lt_products()->product(x, w, bias), fp64(x).mm(fp64(w).t()) + fp64(bias), "bias");
    at::Tensor dx = at::full({rows, in}, std::nan(""), x.options());
    lt_products()->input_gradient(dx, dy, w);
    expect(dx, fp64(dy).mm(fp64(w)), "input gradient");
    at::Tensor sum = at::ones({out, in}, x.options().dtype(at::kFloat));
    lt_products()->add_weight_gradient(sum, dy, x);
    EXPECT_EQ(sum.scalar_type(), at::kFloat);
    const at::Tensor right = fp64(dy).t().mm(fp64(x)) + 1;
    EXPECT_LE((fp64(sum) - right).abs().max().item<double>(),
              5e-6 * right.abs().max().item<double>());
  }
}

TEST_P(CublasLtProducts, HaveSameBitsAtAnyAddress) {
  const DeviceScope scope({DeviceKind::kCuda, 0});
  const at::Tensor x = random(96, 128, 0), w = random(64, 128, 0);
  const at::Tensor y = lt_products()->product(x, w, {});
  for (const std::int64_t shift : {8, 64, 1000}) {
    const at::Tensor there = random(96, 128, shift);
    there.copy_(x);
    EXPECT_TRUE(at::equal(lt_products()->product(there, w, {}), y)) << shift;
  }
}

TEST_P(CublasLtProducts, ComputeEpilogues) {
  const DeviceScope scope({DeviceKind::kCuda, 0});
  int made = 0;
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{64, 128, 256}, {100, 40, 24}, {7, 9, 11}}) {
    const at::Tensor x = random(rows, in, 0), w = random(out, in, 0), dy = random(rows, out, 0);
    const at::Tensor bias = at::randn({out}).to(GetParam()).to(at::kCUDA);
    const auto poisoned = [&](at::IntArrayRef shape, at::ScalarType dtype) {
      return at::full(shape, std::nan(""), x.options().dtype(dtype));
    };
    const at::Tensor exact = fp64(x).mm(fp64(w).t()) + fp64(bias);
    at::Tensor y = poisoned({rows, out}, GetParam()), activated = poisoned({rows, out}, GetParam());
    if (lt_products()->product_and_gelu(y, activated, x, w, bias)) {
      expect(y, exact, "GELU's input");
      expect(activated, at::gelu(exact, "tanh"), "GELU");
      ++made;
    }
    at::Tensor dx = poisoned({rows, in}, GetParam());
    if (lt_products()->input_gradient_of_gelu(dx, dy, w, x)) {
      expect(dx, at::gelu_backward(fp64(dy).mm(fp64(w)), fp64(x), "tanh"), "GELU's gradient");
      ++made;
    }
    at::Tensor sum = at::ones({out, in}, x.options().dtype(at::kFloat)),
               columns = poisoned({out}, at::kFloat);
    if (lt_products()->add_weight_gradient_and_sum(sum, columns, dy, x)) {
      expect(sum, fp64(dy).t().mm(fp64(x)) + 1, "weight gradient");
      expect(columns, fp64(dy).sum({0}), "bias gradient");
      ++made;
    }
  }
  // At least for the even shape, in 16 bit.
  if (GetParam() != at::kFloat) EXPECT_GE(made, 3);
  RecordProperty("epilogues", made);
}

INSTANTIATE_TEST_SUITE_P(Precisions, CublasLtProducts,
                         testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

}  // namespace
}  // namespace strata
