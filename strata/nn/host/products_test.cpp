// Tests fp32 products of both libraries: numbers against sums in double precision, bits against
// other numbers of threads.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/host/sgemm.h"

namespace strata {
namespace {

const at::TensorOptions kFp32 = host_options(at::kFloat);

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() == 0 ? 0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// Layout in memory: rows or columns are contiguous, or neither, possibly a part of a larger matrix.
at::Tensor random_matrix(std::int64_t rows, std::int64_t columns, int layout) {
  switch (layout) {
    case 0:
      return at::randn({rows, columns}, kFp32);
    case 1:
      return at::randn({columns, rows}, kFp32).t();
    case 2:
      return at::randn({rows, columns + 3}, kFp32).narrow(1, 2, columns);
    default:
      return at::randn({rows, 2 * columns}, kFp32).slice(1, 0, 2 * columns, 2);
  }
}

TEST(OneDnnSgemm, MultipliesAnyLayoutAtAnyAddress) {
  if (!has_onednn()) GTEST_SKIP() << "no oneDNN is here";
  std::mt19937 random(1);
  const auto draw = [&](int most) { return static_cast<std::int64_t>(random() % most) + 1; };
  for (int round = 0; round < 200; ++round) {
    const bool small = round % 2 == 0;
    const std::int64_t m = draw(small ? 4 : 300), n = draw(small ? 4 : 200),
                       k = draw(small ? 4 : 300);
    const at::Tensor a = random_matrix(m, k, static_cast<int>(random() % 4));
    const at::Tensor b = random_matrix(k, n, static_cast<int>(random() % 4));
    const at::Tensor whole = at::full({m, n + 5}, 7, kFp32);
    const at::Tensor c = whole.narrow(1, 1, n);
    const bool add = random() % 2 == 0;
    if (!add) c.fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor expected = a.to(at::kDouble).mm(b.to(at::kDouble)) + (add ? 7 : 0);
    onednn_sgemm(a, b, c, add ? 1 : 0);
    EXPECT_LT(largest_difference(c, expected), 1e-5 * static_cast<double>(k + 8))
        << m << " " << k << " " << n;
    EXPECT_EQ(largest_difference(whole.narrow(1, 0, 1), at::full({m, 1}, 7, kFp32)), 0);
    EXPECT_EQ(largest_difference(whole.narrow(1, n + 1, 4), at::full({m, 4}, 7, kFp32)), 0);
  }
}

TEST(OneDnnSgemm, AcceptsEmptyMatrices) {
  if (!has_onednn()) GTEST_SKIP() << "no oneDNN is here";
  const auto zeros = [](std::int64_t rows, std::int64_t columns) {
    return at::zeros({rows, columns}, kFp32);
  };
  const at::Tensor none = zeros(0, 4), two = at::full({2, 4}, 3, kFp32);
  onednn_sgemm(zeros(0, 5), zeros(5, 4), none, 0);
  onednn_sgemm(zeros(2, 0), zeros(0, 4), two, 1);
  EXPECT_EQ(two.sum().item<float>(), 24);
  onednn_sgemm(zeros(2, 0), zeros(0, 4), two, 0);
  EXPECT_EQ(two.sum().item<float>(), 0);
  EXPECT_THROW(onednn_sgemm(zeros(2, 3), zeros(4, 4), two, 0), InternalError);
}

struct Products {
  at::Tensor y, logits, dx, dw;
};

class Fp32Products : public testing::TestWithParam<bool> {
 protected:
  static Products multiply(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& dy) {
    const Primitives& host = host_primitives();
    Products made{.y = host.products.product(x, weight, bias),
                  .logits = host.products.logits(x, weight),
                  .dx = at::full(x.sizes(), std::numeric_limits<float>::quiet_NaN(), kFp32),
                  .dw = at::full(weight.sizes(), 2, kFp32)};
    host.products.input_gradient(made.dx, dy, weight);
    host.products.add_weight_gradient(made.dw, dy, x);
    return made;
  }

  const MultiplyByOneDnn by_{GetParam()};
};

TEST_P(Fp32Products, EqualDoublePrecisionWithSameBitsOnAnyThreads) {
  for (const auto& [rows, in, out] :
       {std::tuple(1, 64, 512), std::tuple(3, 5, 7), std::tuple(70, 48, 32),
        std::tuple(1024, 96, 400), std::tuple(700, 384, 1152), std::tuple(161, 64, 48),
        std::tuple(245, 576, 192), std::tuple(510, 1536, 576)}) {
    const at::Tensor x = at::randn({rows, in}, kFp32), weight = at::randn({out, in}, kFp32);
    const at::Tensor bias = at::randn({out}, kFp32), dy = at::randn({rows, out}, kFp32);
    ThreadPool one(1), three(3);
    std::optional<ThreadPoolScope> scope(one);
    const Products alone = multiply(x, weight, bias, dy);
    scope.reset();
    scope.emplace(three);
    const Products shared = multiply(x, weight, bias, dy);
    scope.reset();
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor y = wide(x).mm(wide(weight).t());
    EXPECT_LT(largest_difference(alone.y, y + wide(bias)), 1e-5 * (in + 8));
    EXPECT_LT(largest_difference(alone.logits, y), 1e-5 * (in + 8));
    EXPECT_LT(largest_difference(alone.dx, wide(dy).mm(wide(weight))), 1e-5 * (out + 8));
    EXPECT_LT(largest_difference(alone.dw, wide(dy).t().mm(wide(x)) + 2), 1e-5 * (rows + 8));
    EXPECT_TRUE(alone.y.equal(shared.y)) << rows << " " << in << " " << out;
    EXPECT_TRUE(alone.logits.equal(shared.logits)) << rows << " " << in << " " << out;
    EXPECT_TRUE(alone.dx.equal(shared.dx)) << rows << " " << in << " " << out;
    EXPECT_TRUE(alone.dw.equal(shared.dw)) << rows << " " << in << " " << out;
  }
}

INSTANTIATE_TEST_SUITE_P(By, Fp32Products, testing::Bool(),
                         [](const auto& by) { return by.param ? "OneDnn" : "Blas"; });

}  // namespace
}  // namespace strata
