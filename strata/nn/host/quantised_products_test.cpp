// Rounding to 8 and 4 bits against its formula, and products by such weights against fp32 products
// by their values, bit by bit.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/device.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/kernels/quantised_columns.h"
#include "strata/nn/primitives/quantised_weight.h"

namespace strata {
namespace {

const at::TensorOptions kQuantisedFp32 = host_options(at::kFloat);
constexpr float kInfinity = std::numeric_limits<float>::infinity();
using kernels::QuantisedRow;
using kernels::QuantisedType;

QuantisedRow rounded(QuantisedType type, const std::vector<float>& row) {
  QuantisedRow result(type, std::ssize(row));
  result.round(row.data());
  return result;
}

std::vector<int> steps(const QuantisedRow& row, std::int64_t count) {
  std::vector<int> q;
  for (std::int64_t term = 0; term < count; ++term) q.push_back(row.q(term));
  return q;
}

TEST(Int8Rows, RoundToTheNearestOf255Values) {
  const QuantisedRow row =
      rounded(QuantisedType::kInt8, {127, -127, 0, 1, 2.5F, 3.5F, -2.5F, 0.5F, 126.49F});
  EXPECT_EQ(row.scale(0), 1);
  EXPECT_EQ(steps(row, 9), (std::vector<int>{127, -127, 0, 1, 2, 4, -2, 0, 126}));
  EXPECT_EQ(rounded(QuantisedType::kInt8, {-0.5F}).q(0), -127);
  EXPECT_EQ(rounded(QuantisedType::kInt8, {-0.5F}).scale(0), 0.5F / 127);
}

TEST(Int8Rows, KeepZeros) {
  const QuantisedRow row = rounded(QuantisedType::kInt8, {0, -0.0F, 0, 0, 0});
  EXPECT_EQ(row.scale(0), 0);
  EXPECT_EQ(steps(row, 5), std::vector<int>(5, 0));
}

TEST(Int8Rows, ErrAtMostHalfAScaleForEveryWidth) {
  for (const std::int64_t in : {1, 2, 3, 4, 5, 7, 64, 129, 1000})
    for (const float outlier : {0.0F, 50.0F, -1e6F}) {
      const at::Tensor x = at::randn({in}, kQuantisedFp32);
      float* values = x.data_ptr<float>();
      if (outlier != 0) values[in / 2] = outlier;
      const QuantisedRow row = rounded(QuantisedType::kInt8, {values, values + in});
      float most = 0;
      for (std::int64_t i = 0; i < in; ++i) most = std::max(most, std::abs(values[i]));
      EXPECT_EQ(row.scale(0), most / 127);
      for (std::int64_t i = 0; i < in; ++i) {
        EXPECT_LE(std::abs(static_cast<double>(row.scale(0)) * row.q(i) - values[i]),
                  0.5000001 * row.scale(0))
            << i << " of " << in;
        EXPECT_EQ(row.value(i), row.scale(0) * static_cast<float>(row.q(i)));
      }
    }
}

// 190 / 127 rounds to one smallest number, of which there would be 190.
TEST(Int8Rows, StayInRangeIfTheScaleLosesDigits) {
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  const QuantisedRow row =
      rounded(QuantisedType::kInt8, {190 * kSmallest, -190 * kSmallest, 0, 5 * kSmallest});
  EXPECT_EQ(row.scale(0), kSmallest);
  EXPECT_EQ(steps(row, 4), (std::vector<int>{127, -127, 0, 5}));
  EXPECT_EQ(rounded(QuantisedType::kInt8, {kSmallest}).scale(0), 0);
  EXPECT_EQ(rounded(QuantisedType::kInt8, {kSmallest}).q(0), 0);
}

TEST(Int4Rows, HaveStepsFromTheLeastToTheLargestTermOfEachGroup) {
  std::vector<float> x(40, 4);
  for (int i = 0; i < 16; ++i) x[i] = static_cast<float>(i) / 4 - 1;  // -1 to 2.75
  for (int i = 32; i < 40; ++i) x[i] = static_cast<float>(i - 32) * 15;
  x[33] = 7;   // half a step, to the even one
  x[34] = 21;  // a step and a half
  x[16] = 2.75F;
  for (int i = 17; i < 32; ++i) x[i] = -1;
  const QuantisedRow row = rounded(QuantisedType::kInt4, x);
  EXPECT_EQ(row.scale(0), 0.25F);
  EXPECT_EQ(row.minimum(0), -1);
  EXPECT_EQ(row.scale(1), 7);
  EXPECT_EQ(row.minimum(1), 0);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(row.q(i), i);
  EXPECT_EQ(steps(row, 18)[16], 15);
  EXPECT_EQ(steps(row, 18)[17], 0);
  EXPECT_EQ(row.q(33), 1);
  EXPECT_EQ(row.q(34), 3);
  EXPECT_EQ(row.q(39), 15);
}

TEST(Int4Rows, KeepNumbersThatAreEqual) {
  for (const float x : {0.0F, 3.5F, -0.125F}) {
    const QuantisedRow row = rounded(QuantisedType::kInt4, std::vector<float>(70, x));
    for (int i = 0; i < 70; ++i) EXPECT_EQ(row.value(i), x);
  }
}

// Half a step, and what fp16 rounds off the minimum and off the scale, 15 times.
TEST(Int4Rows, ErrAtMostHalfAStepAndTheRoundingOfFp16) {
  for (const std::int64_t in : {1, 2, 31, 32, 33, 64, 129, 1000})
    for (const float factor : {1.0F, 1e-6F, 500.0F}) {
      const at::Tensor x = at::randn({in}, kQuantisedFp32) * factor;
      const float* values = x.const_data_ptr<float>();
      const QuantisedRow row = rounded(QuantisedType::kInt4, {values, values + in});
      for (std::int64_t i = 0; i < in; ++i) {
        const double scale = row.scale(i / 32), minimum = row.minimum(i / 32);
        const double fp16 = 0x1p-11 * (std::abs(minimum) + 15 * scale) + 16 * 0x1p-25;
        EXPECT_LE(std::abs(static_cast<double>(row.value(i)) - values[i]), 0.5 * scale + fp16)
            << i << " of " << in;
        EXPECT_EQ(row.value(i), static_cast<float>(minimum + scale * row.q(i)));
      }
    }
}

// Weights from a file with values of this form, as Q4_1 of GGUF, keep them.
TEST(Int4Rows, KeepValuesThatWereRoundedBefore) {
  const at::Tensor x = at::randn({640}, kQuantisedFp32);
  const float* values = x.const_data_ptr<float>();
  const QuantisedRow once = rounded(QuantisedType::kInt4, {values, values + 640});
  std::vector<float> again;
  for (std::int64_t i = 0; i < 640; ++i) again.push_back(once.value(i));
  const QuantisedRow twice = rounded(QuantisedType::kInt4, again);
  for (std::int64_t i = 0; i < 640; ++i) EXPECT_EQ(twice.value(i), again[i]) << i;
}

// A model with such weights has no answers; rounding must not hide that.
TEST(QuantisedRows, OfNumbersThatAreNotFiniteHaveNoValue) {
  for (const QuantisedType type : {QuantisedType::kInt8, QuantisedType::kInt4})
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      const QuantisedRow row = rounded(type, {1, 2, bad, 3, 4});
      EXPECT_TRUE(std::isnan(row.scale(0)));
      for (int i = 0; i < 5; ++i) EXPECT_TRUE(std::isnan(row.value(i)));
      EXPECT_EQ(steps(row, 5), std::vector<int>(5, 0));
    }
  EXPECT_TRUE(std::isnan(rounded(QuantisedType::kInt4, {-70000, 1}).value(1)));  // beyond fp16
  EXPECT_EQ(rounded(QuantisedType::kInt8, {1, 70000}).value(1), 70000);
}

// A weight in fewer bits and its values, computed here.
struct Weight {
  at::Tensor words, tiles, values;
};

Weight weight_of(QuantisedType type, const at::Tensor& x, std::int64_t cut) {
  const std::int64_t out = x.size(0), in = x.size(1);
  Weight weight{.words = at::zeros({quantised_words(type, out, in)}, kQuantisedFp32),
                .tiles = {},
                .values = at::empty({out, in}, kQuantisedFp32)};
  weight.words.view(at::kByte).fill_(0xA5);  // of earlier weights
  weight.tiles = quantised_weight(type, weight.words, out, in);
  auto* const tiles = static_cast<std::byte*>(weight.words.data_ptr());
  QuantisedRow row(type, in);
  for (std::int64_t o = 0; o < out; ++o) {
    row.round(x.const_data_ptr<float>() + o * in);
    for (std::int64_t begin = 0; begin < in; begin += cut)
      kernels::put(tiles, in, o,
                   {.row = row, .begin = begin, .to = begin, .count = std::min(cut, in - begin)});
    for (std::int64_t k = 0; k < in; ++k)
      weight.values.data_ptr<float>()[o * in + k] = row.value(k);
  }
  return weight;
}

TEST(QuantisedWeight, HasAByteOrHalfAByteForAnElementAndItsScales) {
  EXPECT_EQ(quantised_words(QuantisedType::kInt8, 16, 64) * 4, 16 * 64 + 16 * 4);
  EXPECT_EQ(quantised_words(QuantisedType::kInt4, 16, 64) * 4, 16 * 64 / 2 + 16 * 2 * 4);
  EXPECT_EQ(quantised_words(QuantisedType::kInt4, 16, 33) * 4, 16 * 34 / 2 + 16 * 2 * 4);
  for (const QuantisedType type : {QuantisedType::kInt8, QuantisedType::kInt4}) {
    EXPECT_EQ(quantised_words(type, 17, 3), 2 * quantised_words(type, 16, 3));
    const at::Tensor words = at::zeros({quantised_words(type, 48, 20)}, kQuantisedFp32);
    const at::Tensor weight = quantised_weight(type, words, 48, 20);
    EXPECT_EQ(weight.sizes(), (std::vector<std::int64_t>{48, 20}));
    EXPECT_TRUE(is_quantised(weight));
    EXPECT_EQ(quantised_type(weight), type);
    EXPECT_EQ(weight.const_data_ptr(), words.const_data_ptr());
    EXPECT_THROW(quantised_weight(type, words, 48, 64), InternalError);
    EXPECT_THROW(quantised_tiles(weight, 8), InternalError);
  }
  EXPECT_THROW(quantised_tiles(at::zeros({48, 20}, host_options(at::kChar))), InternalError);
  EXPECT_THROW(quantised_tiles(at::zeros({48, 20}, host_options(at::kByte))), InternalError);
  EXPECT_THROW(quantised_type(at::zeros({48, 20}, kQuantisedFp32)), InternalError);
}

TEST(QuantisedWeight, HasItsValuesForEveryShape) {
  for (const QuantisedType type : {QuantisedType::kInt8, QuantisedType::kInt4})
    for (const std::int64_t out : {1, 7, 8, 15, 16, 17, 40, 100})
      for (const std::int64_t in : {1, 2, 3, 4, 5, 31, 33, 64, 193}) {
        const Weight weight = weight_of(type, at::randn({out, in}, kQuantisedFp32), 7);
        const at::Tensor values = at::zeros({out, in}, kQuantisedFp32);
        kernels::dequantise({type, quantised_tiles(weight.tiles), out, nullptr}, in,
                            values.data_ptr<float>());
        EXPECT_TRUE(values.equal(weight.values)) << out << " x " << in;
      }
}

// As a rank with a part of each row writes it.
TEST(QuantisedWeight, HasTheValuesOfWholeGroupsOfARow) {
  constexpr std::int64_t kIn = 128, kPart = 64;
  const at::Tensor x = at::randn({1, kIn}, kQuantisedFp32);
  QuantisedRow row(QuantisedType::kInt4, kIn);
  row.round(x.const_data_ptr<float>());
  const at::Tensor words =
      at::zeros({quantised_words(QuantisedType::kInt4, 1, kPart)}, kQuantisedFp32);
  auto* const tiles = static_cast<std::byte*>(words.data_ptr());
  kernels::put(tiles, kPart, 0, {.row = row, .begin = kPart, .to = 0, .count = kPart});
  float values[kPart];
  kernels::dequantise({QuantisedType::kInt4, tiles, 1, nullptr}, kPart, values);
  for (std::int64_t i = 0; i < kPart; ++i) EXPECT_EQ(values[i], row.value(kPart + i));
  EXPECT_THROW(kernels::put(tiles, kPart, 0, {.row = row, .begin = 5, .to = 0, .count = 4}),
               InternalError);
}

class QuantisedProducts : public testing::TestWithParam<std::tuple<QuantisedType, int>> {
 protected:
  QuantisedProducts() { at::set_num_threads(1); }
  ~QuantisedProducts() override { at::set_num_threads(before_); }

  const QuantisedType type_ = std::get<0>(GetParam());
  const int before_ = at::get_num_threads();
  ThreadPool pool_{std::get<1>(GetParam())};
  const ThreadPoolScope scope_{pool_};
};

TEST_P(QuantisedProducts, HaveTheBitsOfProductsByTheValues) {
  const ProductPrimitives& products = host_primitives().products;
  for (const std::int64_t in : {16, 63, 192, 200, 577, 1152})
    for (const std::int64_t out : {3, 16, 17, 31, 48, 150, 300}) {
      const Weight weight = weight_of(type_, at::randn({out, in}, kQuantisedFp32), in);
      const at::Tensor x = at::randn({130, in}, kQuantisedFp32);
      const at::Tensor bias = at::randn({out}, kQuantisedFp32);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 16, 33, 64, 65, 128})
        for (const std::int64_t first : {0, 2}) {
          const at::Tensor few = x.narrow(0, first, rows);
          for (const at::Tensor& add : {at::Tensor(), bias})
            EXPECT_TRUE(products.product(few, weight.tiles, add)
                            .equal(products.product(few, weight.values, add)))
                << rows << " x " << in << " x " << out;
        }
    }
}

TEST_P(QuantisedProducts, PassOnNumbersThatAreNotFinite) {
  const ProductPrimitives& products = host_primitives().products;
  at::Tensor x = at::randn({40, 64}, kQuantisedFp32);
  x[5][6] = kInfinity;
  const Weight weight = weight_of(type_, x, 64);
  const at::Tensor y = products.product(at::randn({2, 64}, kQuantisedFp32), weight.tiles, {});
  for (std::int64_t column = 0; column < 40; ++column)
    EXPECT_EQ(std::isnan(y[0][column].item<float>()), column == 5);
}

TEST_P(QuantisedProducts, RefuseValuesOf16Bit) {
  const Weight weight = weight_of(type_, at::randn({32, 64}, kQuantisedFp32), 64);
  EXPECT_THROW(host_primitives().products.product(at::zeros({2, 64}, host_options(at::kBFloat16)),
                                                  weight.tiles, {}),
               InternalError);
}

INSTANTIATE_TEST_SUITE_P(TypesAndThreads, QuantisedProducts,
                         testing::Combine(testing::Values(QuantisedType::kInt8,
                                                          QuantisedType::kInt4),
                                          testing::Values(1, 2)));

}  // namespace
}  // namespace strata
