// Compares products of few rows and attention of few queries with those of whole samples, bit by
// bit, by MKL, with and without widening, on one thread and on several.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "strata/device/device.h"
#include "strata/device/fast_products.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/host/few_rows.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/serve/bit_check.h"

namespace strata {
namespace {

struct Way {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  bool widens = true;
  int threads = 1;
  bool onednn = false;
};

// Libraries use one thread, as in ranks; the pool's threads share the work.
class FewRows : public testing::TestWithParam<Way> {
 protected:
  FewRows() { at::set_num_threads(1); }
  ~FewRows() override { at::set_num_threads(before_); }

  void SetUp() override {
    if (GetParam().onednn && !chosen_) GTEST_SKIP() << "this processor multiplies by MKL";
  }

  const int before_ = at::get_num_threads();
  const bool chosen_ = multiplies_by_onednn();
  const WidenProducts widens_{GetParam().widens};
  const MultiplyByOneDnn by_{GetParam().onednn};
  ThreadPool pool_{GetParam().threads};
  const ThreadPoolScope scope_{pool_};

  static at::Tensor random(std::vector<std::int64_t> shape) {
    return at::randn(shape, host_options(at::kFloat)).to(GetParam().dtype);
  }
};

TEST_P(FewRows, MultiplyWithBitsOfMany) {
  const ProductPrimitives& products = host_primitives().products;
  for (const std::int64_t in : {16, 112, 192, 200, 601, 1152})
    for (const std::int64_t out : {8, 32, 150, 300}) {
      if (GetParam().onednn && out == 8) continue;  // no kernel for few rows
      // MKL adds up few columns by the number of rows, if the sum's length is odd.
      if (in % 2 == 1 && out == 8) continue;
      const at::Tensor x = random({256, in}), weight = random({out, in}), bias = random({out});
      const at::Tensor y = products.product(x, weight, bias), z = products.logits(x, weight);
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 33, 64, 65, 100, 193})
        for (const std::int64_t first : {0, 7}) {
          const at::Tensor few = x.narrow(0, first, rows);
          EXPECT_TRUE(products.product(few, weight, bias).equal(y.narrow(0, first, rows)))
              << rows << " x " << in << " x " << out;
          EXPECT_TRUE(products.logits(few, weight).equal(z.narrow(0, first, rows)))
              << rows << " x " << in << " x " << out;
        }
    }
}

// Small products of 16 bit are not oneDNN's, and differ in few elements of thousands of rows.
TEST_P(FewRows, MultiplyWithBitsOfManyBySmallWeights) {
  const ProductPrimitives& products = host_primitives().products;
  constexpr std::int64_t kRows = 4096;
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>(16, 16),
                                {16, 24},
                                {24, 8},
                                {32, 16},
                                {32, 32},
                                {64, 16},
                                {128, 8}}) {
    if (GetParam().onednn && out == 8) continue;  // no kernel for few rows
    const at::Tensor x = random({kRows, in}), weight = random({out, in});
    const at::Tensor y = products.product(x, weight, {});
    for (const std::int64_t rows : {1, 4, 5, 9}) {
      std::int64_t different = 0;
      for (std::int64_t first = 0; first + rows <= kRows; first += rows)
        different +=
            !products.product(x.narrow(0, first, rows), weight, {}).equal(y.narrow(0, first, rows));
      EXPECT_EQ(different, 0) << rows << " x " << in << " x " << out;
    }
  }
}

// Slots that no token of the text has are NaN.
TEST_P(FewRows, AttendWithBitsOfWholeSamples) {
  const AttentionPrimitives& attention = host_primitives().attention;
  for (const auto& [sample, heads, shared, width, page] :
       {std::array<std::int64_t, 5>{64, 2, 1, 8, 7},
        {100, 2, 4, 16, 16},
        {300, 1, 3, 24, 100},
        {512, 2, 1, 64, 48},
        {600, 1, 6, 32, 24},
        {1100, 1, 2, 128, 512},
        {800, 3, 1, 12, 30}}) {
    const at::Tensor q = random({1, sample, heads * shared, width}),
                     k = random({1, sample, heads, width}), v = random({1, sample, heads, width});
    const at::Tensor whole = attention.attend(q, k, v).y;
    const std::int64_t used = (sample + page - 1) / page;
    const at::Tensor order = at::randperm(used + 2, host_options(at::kLong));
    const std::vector<std::int32_t> pages(order.const_data_ptr<std::int64_t>(),
                                          order.const_data_ptr<std::int64_t>() + used);
    for (const std::int64_t tokens : {1, 2, 3, 4, 19, 34})
      for (const std::int64_t wanted :
           {std::int64_t{0}, sample / 3, sample / 2 + 1, std::int64_t{511}, sample}) {
        const std::int64_t position = std::min(wanted, sample - tokens);
        const auto paged = [&](const at::Tensor& x) {
          const at::Tensor pool = at::full({used + 2, heads, page, width},
                                           std::numeric_limits<double>::quiet_NaN(), x.options());
          for (std::int64_t i = 0; i < position + tokens; ++i)
            pool.select(0, pages[i / page]).select(1, i % page).copy_(x[0][i]);
          return pool;
        };
        EXPECT_TRUE(attention
                        .attend_pages(q.narrow(1, position, tokens), paged(k), paged(v),
                                      {.pages = pages, .position = position, .sample = sample})
                        .equal(whole.narrow(1, position, tokens)))
            << tokens << " tokens from " << position << " of " << sample << ", width " << width;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, FewRows,
    testing::Values(Way{.name = "Fp32"}, Way{.name = "Fp32Threads", .threads = 2},
                    Way{.name = "Bf16", .dtype = at::kBFloat16},
                    Way{.name = "Fp16", .dtype = at::kHalf},
                    Way{.name = "Bf16Own", .dtype = at::kBFloat16, .widens = false},
                    Way{.name = "OneDnn", .onednn = true},
                    Way{.name = "OneDnnThreads", .threads = 2, .onednn = true}),
    [](const auto& way) { return way.param.name; });

// Elsewhere products are padded, which takes longer.
TEST(FewRowsKernel, HasTheOrderOfTheLibraries) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2";
  if (__builtin_cpu_supports("avx512f") && !mkl_leaves_avx512())
    GTEST_SKIP() << "MKL uses other instructions";
  for (const bool onednn : {false, true}) {
    const MultiplyByOneDnn by(onednn);
    EXPECT_TRUE(few_rows_hold()) << onednn;
  }
  EXPECT_TRUE(few_queries_hold(64, 512));
#else
  GTEST_SKIP() << "no MKL is here";
#endif
}

TEST(DecodingCheck, FindsNoDifference) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16})
    EXPECT_EQ(decoding_differs_in(precision), "") << precision;
}

}  // namespace
}  // namespace strata
