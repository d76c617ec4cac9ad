// Tests the GPU's kernels over rows and columns: sums against fp64, results from equal sums against
// the host's kernels, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "strata/device/simt/simt_array_test.h"
#include "strata/nn/kernels/cuda_kernels.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {
namespace {

using kernels::Element;
using simt::SimtArray;
using simt::SimtVector;

struct Case {
  Element element;
  std::int64_t rows, columns;
  std::int64_t numel() const { return rows * columns; }
  // Tolerance of results computed in fp32 and rounded once.
  double ulps() const { return element == Element::kFp32 ? 4 : 0.51; }
};

class CudaRows : public testing::Test {
 protected:
  void SetUp() override {
    if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  }

  // Rows per warp, rows per block, rows too long for registers; odd sizes; no rows.
  void for_each_case(const std::function<void(const Case&)>& body) {
    for_each_case(
        {{3, 1}, {0, 16}, {5, 7}, {4, 64}, {9, 129}, {3, 768}, {2, 1500}, {2, 4100}, {1, 9001}},
        body);
  }
  void for_each_case(const std::vector<std::pair<std::int64_t, std::int64_t>>& shapes,
                     const std::function<void(const Case&)>& body) {
    simt::in_every_order([&] {
      for (const Element element : {Element::kFp32, Element::kBf16, Element::kFp16})
        for (const auto& [rows, columns] : shapes) {
          SCOPED_TRACE(testing::Message()
                       << "element " << int(element) << ", " << rows << " x " << columns);
          body({element, rows, columns});
          if (HasFatalFailure()) return;
        }
    });
  }

  SimtArray random(Element element, std::int64_t n, float scale = 1, float shift = 0) {
    std::normal_distribution<float> normal(shift, scale);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = normal(generator_);
    return SimtArray::of(element, values);
  }
  static SimtArray poisoned(Element element, std::int64_t n) {
    return SimtArray::poisoned(element, n);
  }
  static SimtArray floats(std::int64_t n) { return poisoned(Element::kFp32, n); }

  std::mt19937 generator_{11};
};

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

// In fp64.
struct Statistics {
  std::vector<double> mean, rstd;
  Statistics(const SimtArray& x, const Case& of, bool centered, double epsilon) {
    for (std::int64_t row = 0; row < of.rows; ++row) {
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < of.columns; ++c) sum += x[row * of.columns + c];
      mean.push_back(centered ? sum / of.columns : 0);
      for (std::int64_t c = 0; c < of.columns; ++c)
        squares += std::pow(x[row * of.columns + c] - mean.back(), 2);
      rstd.push_back(1 / std::sqrt(squares / of.columns + epsilon));
    }
  }
};

TEST_F(CudaRows, NormsHaveRightStatisticsAndTheHostsBits) {
  for_each_case([&](const Case& of) {
    for (const bool centered : {true, false}) {
      SimtArray x = random(of.element, of.numel(), 2, 3), y = poisoned(of.element, of.numel());
      SimtArray gain = random(of.element, of.columns), bias = random(of.element, of.columns);
      SimtArray mean = floats(of.rows), rstd = floats(of.rows);
      const cuda::NormWeights weights{gain.device(), centered ? bias.device() : nullptr};
      cuda::norm(of.element, x.device(), weights, y.device(), mean.device_floats(),
                 rstd.device_floats(), of.rows, of.columns, 1e-5f, nullptr);
      for (SimtArray* array : {&y, &mean, &rstd}) array->fetch();
      const Statistics right(x, of, centered, 1e-5f);
      if (centered) {
        ASSERT_TRUE(close(mean, right.mean, 4));
      }
      // One element has no deviation, so rstd depends only on epsilon.
      ASSERT_TRUE(close(rstd, right.rstd, 4));

      const std::vector<float> wide_gain = gain.floats(), wide_bias = bias.floats();
      SimtArray expected = poisoned(of.element, of.numel());
      if (centered) {
        kernels::layer_norm_again(of.element, x.host(), wide_gain.data(), wide_bias.data(),
                                  mean.host_floats(), rstd.host_floats(), expected.host(), of.rows,
                                  of.columns);
      } else {
        kernels::rms_norm_again(of.element, x.host(), wide_gain.data(), rstd.host_floats(),
                                expected.host(), of.rows, of.columns);
      }
      ASSERT_TRUE(same_bits(y, expected));
      SimtArray again = poisoned(of.element, of.numel());
      cuda::norm_again(of.element, x.device(), weights, mean.device_floats(), rstd.device_floats(),
                       again.device(), of.rows, of.columns, nullptr);
      again.fetch();
      ASSERT_TRUE(same_bits(again, expected));
    }
  });
}

TEST_F(CudaRows, NormBackwardIsRight) {
  for_each_case([&](const Case& of) {
    for (const bool centered : {true, false}) {
      SimtArray x = random(of.element, of.numel(), 2, 1), dy = random(of.element, of.numel());
      SimtArray gain = random(of.element, of.columns), dx = poisoned(of.element, of.numel());
      const Statistics right(x, of, centered, 1e-3);
      SimtArray mean = floats(of.rows), rstd = floats(of.rows);
      mean =
          SimtArray::of(Element::kFp32, std::vector<float>(right.mean.begin(), right.mean.end()));
      rstd =
          SimtArray::of(Element::kFp32, std::vector<float>(right.rstd.begin(), right.rstd.end()));
      const cuda::NormWeights weights{gain.device(), nullptr};
      const auto backward = [&](SimtArray& gradient, SimtArray& to) {
        cuda::norm_backward(of.element, x.device(), gradient.device(), weights,
                            centered ? mean.device_floats() : nullptr, rstd.device_floats(),
                            to.device(), of.rows, of.columns, nullptr);
        to.fetch();
      };
      backward(dy, dx);
      std::vector<double> expected;
      for (std::int64_t row = 0; row < of.rows; ++row) {
        const double m = mean[row], r = rstd[row];
        double sum_g = 0, sum_gx = 0;
        const auto hat = [&](std::int64_t c) {
          return (x[row * of.columns + c] - (centered ? m : 0)) * r;
        };
        const auto g = [&](std::int64_t c) {
          return static_cast<double>(dy[row * of.columns + c]) * gain[c];
        };
        for (std::int64_t c = 0; c < of.columns; ++c) sum_g += g(c), sum_gx += g(c) * hat(c);
        for (std::int64_t c = 0; c < of.columns; ++c)
          expected.push_back(
              r * (g(c) - (centered ? sum_g / of.columns : 0) - hat(c) * sum_gx / of.columns));
      }
      // If g and its mean cancel, their ulps count.
      double most = largest(expected);
      for (std::int64_t row = 0; row < of.rows; ++row)
        most = std::max(most, double{rstd[row]} * 10);
      ASSERT_TRUE(close(dx, expected, of.ulps(), most * 1e-6));
      SimtArray in_place = SimtArray::of(of.element, dy.floats());
      backward(in_place, in_place);
      ASSERT_TRUE(same_bits(in_place, dx));
    }
  });
}

// Few rows, one tile, a tile and one row, tiles of the second pass; odd sizes of strips.
const std::vector<std::pair<std::int64_t, std::int64_t>> kTall = {
    {0, 5}, {1, 3}, {7, 8}, {128, 33}, {129, 130}, {1000, 257}, {20000, 3}};

TEST_F(CudaRows, ColumnSumsAreRightAndTilesKeepTheirOrder) {
  for_each_case(kTall, [&](const Case& of) {
    SimtArray x = random(of.element, of.numel()), sum = random(Element::kFp32, of.columns);
    const std::vector<float> before = sum.floats();
    SimtArray workspace = floats(cuda::column_workspace(of.rows, of.columns));
    cuda::add_column_sums(of.element, x.device(), sum.device_floats(), of.rows, of.columns,
                          workspace.device_floats(), nullptr);
    sum.fetch();
    // Repeats the order that cuda_kernels.h states.
    const auto tile_sum = [](const std::function<float(std::int64_t)>& at, std::int64_t begin,
                             std::int64_t end) {
      float warps[8] = {};
      for (std::int64_t row = begin; row < end; ++row) warps[(row - begin) % 8] += at(row);
      for (int width = 4; width > 0; width /= 2)
        for (int warp = 0; warp < width; ++warp) warps[warp] += warps[warp + width];
      return warps[0];
    };
    std::vector<float> expected(before);
    for (std::int64_t c = 0; c < of.columns; ++c) {
      std::vector<float> tiles;
      for (std::int64_t begin = 0; begin < of.rows; begin += cuda::kColumnTile)
        tiles.push_back(tile_sum([&](std::int64_t row) { return x[row * of.columns + c]; }, begin,
                                 std::min(begin + cuda::kColumnTile, of.rows)));
      expected[c] += tile_sum([&](std::int64_t tile) { return tiles[tile]; }, 0,
                              static_cast<std::int64_t>(tiles.size()));
    }
    ASSERT_TRUE(same_bits(sum, SimtArray::of(Element::kFp32, expected)));
    ASSERT_TRUE(workspace.is_whole() || of.rows == 0);
    SimtArray host = SimtArray::of(Element::kFp32, before);
    kernels::add_column_sums(of.element, x.host(), host.host_floats(), of.rows, of.columns, 0,
                             of.columns);
    ASSERT_TRUE(close(sum, host, 4, 1e-6 * static_cast<double>(of.rows)));
  });
}

TEST_F(CudaRows, NormWeightGradientsAreRight) {
  for_each_case(kTall, [&](const Case& of) {
    SimtArray x = random(of.element, of.numel(), 2, 1), dy = random(of.element, of.numel());
    SimtArray mean = random(Element::kFp32, of.rows), rstd = random(Element::kFp32, of.rows);
    SimtArray workspace = floats(cuda::column_workspace(of.rows, of.columns));
    for (const bool centered : {true, false}) {
      SimtArray dgain = random(Element::kFp32, of.columns),
                dbias = random(Element::kFp32, of.columns);
      std::vector<double> gain, bias;
      double most = 1;
      for (std::int64_t c = 0; c < of.columns; ++c) {
        gain.push_back(dgain[c]);
        bias.push_back(dbias[c]);
        double terms = 0;
        for (std::int64_t row = 0; row < of.rows; ++row) {
          const std::int64_t at = row * of.columns + c;
          const double term = dy[at] * (x[at] - (centered ? double{mean[row]} : 0)) * rstd[row];
          gain.back() += term;
          terms += std::abs(term);
          if (centered) bias.back() += dy[at];
        }
        most = std::max(most, terms);
      }
      cuda::norm_weight_gradient(of.element, x.device(), dy.device(),
                                 centered ? mean.device_floats() : nullptr, rstd.device_floats(),
                                 dgain.device_floats(), centered ? dbias.device_floats() : nullptr,
                                 of.rows, of.columns, workspace.device_floats(), nullptr);
      dgain.fetch();
      dbias.fetch();
      // A chain in a tile has 16 terms, so errors are below 32 roundings of the terms' sum.
      ASSERT_TRUE(close(dgain, gain, 4, most * 32 * 0x1p-24));
      ASSERT_TRUE(close(dbias, bias, 4, most * 32 * 0x1p-24));
    }
  });
}

TEST_F(CudaRows, BatchNormEqualsHostForSameStatistics) {
  for_each_case(kTall, [&](const Case& of) {
    if (of.element != Element::kFp32 || of.rows == 0) return;
    SimtArray x = random(of.element, of.numel(), 2, 5), y = poisoned(of.element, of.numel());
    SimtArray mean = floats(of.columns), variance = floats(of.columns);
    SimtArray gain = random(of.element, of.columns), bias = random(of.element, of.columns);
    SimtArray workspace = floats(cuda::column_workspace(of.rows, of.columns));
    cuda::batch_statistics(x.device_floats(), mean.device_floats(), variance.device_floats(),
                           of.rows, of.columns, workspace.device_floats(), nullptr);
    mean.fetch();
    variance.fetch();
    std::vector<double> right_mean, right_variance;
    for (std::int64_t c = 0; c < of.columns; ++c) {
      double sum = 0, squares = 0;
      for (std::int64_t row = 0; row < of.rows; ++row) sum += x[row * of.columns + c];
      right_mean.push_back(sum / of.rows);
      for (std::int64_t row = 0; row < of.rows; ++row)
        squares += std::pow(x[row * of.columns + c] - double{mean[c]}, 2);
      right_variance.push_back(squares / of.rows);
    }
    ASSERT_TRUE(close(mean, right_mean, 4));
    ASSERT_TRUE(close(variance, right_variance, 8));

    const kernels::BatchNormColumns on_device{gain.device_floats(), bias.device_floats(),
                                              mean.device_floats(), variance.device_floats(),
                                              1e-5f};
    const kernels::BatchNormColumns on_host{gain.host_floats(), bias.host_floats(),
                                            mean.host_floats(), variance.host_floats(), 1e-5f};
    cuda::batch_norm(x.device_floats(), on_device, y.device_floats(), of.rows, of.columns, nullptr);
    y.fetch();
    SimtArray expected = poisoned(of.element, of.numel());
    kernels::batch_norm(x.host_floats(), on_host, expected.host_floats(), of.rows, of.columns, 0,
                        of.columns);
    ASSERT_TRUE(same_bits(y, expected));

    SimtArray dy = random(of.element, of.numel());
    SimtArray dgain = random(of.element, of.columns), dbias = random(of.element, of.columns);
    SimtArray right_dy = SimtArray::of(of.element, dy.floats());
    SimtArray right_dgain = SimtArray::of(of.element, dgain.floats());
    SimtArray right_dbias = SimtArray::of(of.element, dbias.floats());
    cuda::batch_norm_backward(x.device_floats(), dy.device_floats(), on_device,
                              dgain.device_floats(), dbias.device_floats(), of.rows, of.columns,
                              workspace.device_floats(), nullptr);
    for (SimtArray* array : {&dy, &dgain, &dbias}) array->fetch();
    kernels::batch_norm_backward(x.host_floats(), right_dy.host_floats(), on_host,
                                 right_dgain.host_floats(), right_dbias.host_floats(), of.rows,
                                 of.columns, 0, of.columns);
    // The host adds in one chain; the tolerance includes its error.
    const double absolute = 1e-7 * (10 + std::sqrt(static_cast<double>(of.rows)) * 10);
    ASSERT_TRUE(close(dgain, right_dgain, 8, 10 * absolute));
    ASSERT_TRUE(close(dbias, right_dbias, 8, 10 * absolute));
    double most = 1;
    for (std::int64_t c = 0; c < of.columns; ++c)
      most = std::max(most, std::abs(gain[c]) / std::sqrt(variance[c] + 1e-5));
    ASSERT_TRUE(close(dy, right_dy, 8, absolute * most));
  });
}

}  // namespace
}  // namespace strata
