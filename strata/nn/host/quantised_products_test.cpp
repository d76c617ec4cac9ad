// Rounding to 8 bits against its formula, and products by 8-bit weights against fp32 products by
// their values, bit by bit.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/kernels/int8_columns.h"
#include "strata/nn/primitives/int8_weight.h"

namespace strata {
namespace {

const at::TensorOptions kInt8Fp32 = host_options(at::kFloat);
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Rounded {
  float scale;
  std::vector<std::int8_t> q;
};

Rounded rounded(const std::vector<float>& row) {
  Rounded result{0, std::vector<std::int8_t>(row.size(), 99)};
  result.scale = kernels::quantise_row(row.data(), std::ssize(row), result.q.data());
  return result;
}

TEST(Int8Rows, RoundToTheNearestOf255Values) {
  const Rounded row = rounded({127, -127, 0, 1, 2.5F, 3.5F, -2.5F, 0.5F, 126.49F});
  EXPECT_EQ(row.scale, 1);
  EXPECT_EQ(row.q, (std::vector<std::int8_t>{127, -127, 0, 1, 2, 4, -2, 0, 126}));
  EXPECT_EQ(rounded({-0.5F}).q, (std::vector<std::int8_t>{-127}));
  EXPECT_EQ(rounded({-0.5F}).scale, 0.5F / 127);
}

TEST(Int8Rows, KeepZeros) {
  const Rounded row = rounded({0, -0.0F, 0, 0, 0});
  EXPECT_EQ(row.scale, 0);
  EXPECT_EQ(row.q, std::vector<std::int8_t>(5, 0));
}

TEST(Int8Rows, ErrAtMostHalfAScaleForEveryWidth) {
  for (const std::int64_t in : {1, 2, 3, 4, 5, 7, 64, 129, 1000})
    for (const float outlier : {0.0F, 50.0F, -1e6F}) {
      const at::Tensor x = at::randn({in}, kInt8Fp32);
      float* values = x.data_ptr<float>();
      if (outlier != 0) values[in / 2] = outlier;
      const Rounded row = rounded({values, values + in});
      float most = 0;
      for (std::int64_t i = 0; i < in; ++i) most = std::max(most, std::abs(values[i]));
      EXPECT_EQ(row.scale, most / 127);
      for (std::int64_t i = 0; i < in; ++i)
        EXPECT_LE(std::abs(static_cast<double>(row.scale) * row.q[i] - values[i]),
                  0.5000001 * row.scale)
            << i << " of " << in;
    }
}

// 190 / 127 rounds to one smallest number, of which there would be 190.
TEST(Int8Rows, StayInRangeIfTheScaleLosesDigits) {
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const Rounded row = rounded({190 * kSmallest, -190 * kSmallest, 0, 5 * kSmallest});
  EXPECT_EQ(row.scale, kSmallest);
  EXPECT_EQ(row.q, (std::vector<std::int8_t>{127, -127, 0, 5}));
  EXPECT_EQ(rounded({kSmallest}).scale, 0);
  EXPECT_EQ(rounded({kSmallest}).q[0], 0);
}

// A model with such weights has no answers; rounding must not hide that.
TEST(Int8Rows, OfNumbersThatAreNotFiniteHaveNoValue) {
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const Rounded row = rounded({1, 2, bad, 3, 4});
    EXPECT_TRUE(std::isnan(row.scale));
    EXPECT_EQ(row.q, std::vector<std::int8_t>(5, 0));
  }
}

// A weight in 8 bits and its values, computed here.
struct Weight {
  at::Tensor words, int8, values;
};

Weight weight_of(const at::Tensor& x, std::int64_t cut) {
  const std::int64_t out = x.size(0), in = x.size(1);
  Weight weight{.words = at::zeros({int8_words(out, in)}, kInt8Fp32),
                .int8 = {},
                .values = at::empty({out, in}, kInt8Fp32)};
  weight.int8 = int8_weight(weight.words, out, in);
  auto* const tiles = static_cast<std::byte*>(weight.words.data_ptr());
  std::vector<std::int8_t> q(static_cast<std::size_t>(in));
  for (std::int64_t o = 0; o < out; ++o) {
    const float scale = kernels::quantise_row(x.const_data_ptr<float>() + o * in, in, q.data());
    for (std::int64_t begin = 0; begin < in; begin += cut)
      kernels::put_int8(tiles, in, o, scale, q.data() + begin, begin, std::min(cut, in - begin));
    for (std::int64_t k = 0; k < in; ++k)
      weight.values.data_ptr<float>()[o * in + k] = scale * static_cast<float>(q[k]);
  }
  return weight;
}

TEST(Int8Weight, HasAByteForAnElementAndAScaleForARow) {
  EXPECT_EQ(int8_words(16, 64) * 4, 16 * 64 + 16 * 4);
  EXPECT_EQ(int8_words(17, 3), 2 * int8_words(16, 3));
  const at::Tensor words = at::zeros({int8_words(48, 20)}, kInt8Fp32);
  const at::Tensor weight = int8_weight(words, 48, 20);
  EXPECT_EQ(weight.sizes(), (std::vector<std::int64_t>{48, 20}));
  EXPECT_TRUE(is_int8_weight(weight));
  EXPECT_EQ(weight.const_data_ptr(), words.const_data_ptr());
  EXPECT_THROW(int8_weight(words, 48, 24), InternalError);
  EXPECT_THROW(int8_tiles(weight, 8), InternalError);
  EXPECT_THROW(int8_tiles(at::zeros({48, 20}, host_options(at::kChar))), InternalError);
}

TEST(Int8Weight, HasItsValuesForEveryShape) {
  for (const std::int64_t out : {1, 7, 8, 15, 16, 17, 40, 100})
    for (const std::int64_t in : {1, 2, 3, 4, 5, 31, 64, 193}) {
      const Weight weight = weight_of(at::randn({out, in}, kInt8Fp32), 7);
      const at::Tensor values = at::zeros({out, in}, kInt8Fp32);
      kernels::dequantise({int8_tiles(weight.int8), out, nullptr}, in, values.data_ptr<float>());
      EXPECT_TRUE(values.equal(weight.values)) << out << " x " << in;
    }
}

class Int8Products : public testing::TestWithParam<int> {
 protected:
  Int8Products() { at::set_num_threads(1); }
  ~Int8Products() override { at::set_num_threads(before_); }

  const int before_ = at::get_num_threads();
  ThreadPool pool_{GetParam()};
  const ThreadPoolScope scope_{pool_};
};

TEST_P(Int8Products, HaveTheBitsOfProductsByTheValues) {
  const ProductPrimitives& products = host_primitives().products;
  for (const std::int64_t in : {16, 63, 192, 200, 577, 1152})
    for (const std::int64_t out : {3, 16, 17, 31, 48, 150, 300}) {
      const Weight weight = weight_of(at::randn({out, in}, kInt8Fp32), in);
      const at::Tensor x = at::randn({130, in}, kInt8Fp32), bias = at::randn({out}, kInt8Fp32);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 16, 33, 64, 65, 128})
        for (const std::int64_t first : {0, 2}) {
          const at::Tensor few = x.narrow(0, first, rows);
          for (const at::Tensor& add : {at::Tensor(), bias})
            EXPECT_TRUE(products.product(few, weight.int8, add)
                            .equal(products.product(few, weight.values, add)))
                << rows << " x " << in << " x " << out;
        }
    }
}

TEST_P(Int8Products, PassOnNumbersThatAreNotFinite) {
  const ProductPrimitives& products = host_primitives().products;
  at::Tensor x = at::randn({40, 64}, kInt8Fp32);
  x[5][6] = kInfinity;
  const Weight weight = weight_of(x, 64);
  const at::Tensor y = products.product(at::randn({2, 64}, kInt8Fp32), weight.int8, {});
  for (std::int64_t column = 0; column < 40; ++column)
    EXPECT_EQ(std::isnan(y[0][column].item<float>()), column == 5);
}

TEST_P(Int8Products, RefuseValuesOf16Bit) {
  const Weight weight = weight_of(at::randn({32, 64}, kInt8Fp32), 64);
  EXPECT_THROW(host_primitives().products.product(at::zeros({2, 64}, host_options(at::kBFloat16)),
                                                  weight.int8, {}),
               InternalError);
}

INSTANTIATE_TEST_SUITE_P(Threads, Int8Products, testing::Values(1, 2));

}  // namespace
}  // namespace strata
