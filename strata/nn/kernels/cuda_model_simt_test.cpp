// Tests the GPU's kernels of embeddings, positions, interactions and losses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "strata/device/simt/simt_array_test.h"
#include "strata/device/step_scalars.h"
#include "strata/nn/kernels/cuda_kernels.h"
#include "strata/nn/kernels/kernels.h"

namespace strata {
namespace {

using kernels::Element;
using simt::SimtArray;
using simt::SimtVector;

constexpr Element kElements[] = {Element::kFp32, Element::kBf16, Element::kFp16};

class CudaModel : public testing::Test {
 protected:
  void SetUp() override {
    if (!simt::has_machine()) GTEST_SKIP() << "no CUDA device";
  }
  SimtArray random(Element element, std::int64_t n, float scale = 1) {
    return SimtArray::random(element, n, generator_, scale);
  }
  static void* at(SimtArray& array, std::int64_t i) {
    return static_cast<char*>(array.host()) + i * kernels::bytes_of(array.element());
  }
  std::vector<std::int64_t> some_tokens(std::int64_t n, std::int64_t most) {
    std::uniform_int_distribution<std::int64_t> any(0, most);
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(n));
    for (std::int64_t& token : tokens) token = any(generator_);
    return tokens;
  }
  std::mt19937 generator_{13};
};

TEST_F(CudaModel, GathersOwnRowsAndZerosOthers) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t width : {1, 8, 21, 768})
        for (const std::int64_t positions : {0, 1, 37}) {
          const std::int64_t first = 5, count = 9;
          SimtVector<std::int64_t> tokens(some_tokens(positions, 20));
          SimtArray weight = random(element, count * width);
          SimtArray y = SimtArray::poisoned(element, positions * width);
          cuda::gather_rows(element, tokens.device(), weight.device(), y.device(), positions, width,
                            first, count, nullptr);
          y.fetch();
          std::vector<float> expected;
          for (std::int64_t i = 0; i < positions; ++i)
            for (std::int64_t c = 0; c < width; ++c) {
              const std::int64_t row = tokens[i] - first;
              expected.push_back(row < 0 || row >= count ? 0.0f : weight[row * width + c]);
            }
          ASSERT_TRUE(same_bits(y, SimtArray::of(element, expected)));
        }
  });
}

TEST_F(CudaModel, RowGradientsHaveTheHostsBits) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t width : {1, 8, 21, 520})
        for (const std::int64_t positions : {0, 1, 4, 5, 300}) {
          const std::int64_t first = 3, count = 7;  // rows that occur often
          SimtVector<std::int64_t> tokens(some_tokens(positions, 12));
          SimtArray dy = random(element, positions * width);
          SimtArray sum = random(Element::kFp32, count * width);
          SimtArray expected = SimtArray::of(Element::kFp32, sum.floats());
          SimtVector<std::int32_t> rows(positions, -1), order(positions, -1);
          SimtVector<unsigned char> workspace(cuda::sort_workspace(positions), 0);
          cuda::sort_tokens(tokens.device(), positions, first, count, rows.device(), order.device(),
                            workspace.device(), nullptr);
          rows.fetch();
          order.fetch();
          for (std::int64_t i = 0; i < positions; ++i) {
            const std::int64_t row = tokens[order[i]] - first;
            ASSERT_EQ(rows[i], row >= 0 && row < count ? row : count);
            if (i == 0) continue;
            ASSERT_TRUE(rows[i - 1] < rows[i] ||
                        (rows[i - 1] == rows[i] && order[i - 1] < order[i]));
          }
          cuda::add_rows(element, rows.device(), order.device(), dy.device(), sum.device_floats(),
                         positions, width, count, nullptr);
          sum.fetch();
          for (std::int64_t i = 0; i < positions; ++i) {
            const std::int64_t row = tokens[i] - first;
            if (row >= 0 && row < count)
              kernels::add_to(element, at(dy, i * width), expected.host_floats() + row * width,
                              width);
          }
          ASSERT_TRUE(same_bits(sum, expected)) << positions << " x " << width;
        }
  });
}

TEST_F(CudaModel, PositionGradientsHaveTheHostsBits) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t width : {1, 8, 21})
        for (const std::int64_t samples : {0, 1, 6}) {
          const std::int64_t length = 11;
          SimtArray dy = random(element, samples * length * width);
          SimtArray sum = random(Element::kFp32, length * width);
          SimtArray expected = SimtArray::of(Element::kFp32, sum.floats());
          cuda::add_position_gradients(element, dy.device(), sum.device_floats(), samples, length,
                                       width, nullptr);
          sum.fetch();
          for (std::int64_t i = 0; i < samples * length; ++i)
            kernels::add_to(element, at(dy, i * width), expected.host_floats() + i % length * width,
                            width);
          ASSERT_TRUE(same_bits(sum, expected));
        }
  });
}

TEST_F(CudaModel, RotaryPositionsHaveTheHostsBits) {
  simt::in_every_order([&] {
    for (const Element element : kElements)
      for (const std::int64_t width : {2, 16, 22, 128})
        for (const float direction : {1.0f, -1.0f}) {
          // q in a packed [q | k | v].
          const cuda::HeadRows rows{2, 5, 3, width, 5 * 9 * width, 9 * width};
          SimtArray x = random(element, 2 * 5 * 9 * width);
          SimtArray table = random(Element::kFp32, 5 * width);
          SimtArray expected = SimtArray::of(element, x.floats());
          cuda::rotate(element, x.device(), rows, table.device_floats(), direction, nullptr);
          x.fetch();
          for (std::int64_t token = 0; token < 2 * 5; ++token) {
            const float* angles = table.host_floats() + token % 5 * width;
            kernels::rotate(element, at(expected, token * 9 * width), angles, angles + width / 2, 3,
                            width, direction);
          }
          ASSERT_TRUE(same_bits(x, expected)) << width;
        }
  });
}

TEST_F(CudaModel, InteractionsAreRightAndGradientHasTheHostsBits) {
  simt::in_every_order([&] {
    for (const std::int64_t width : {1, 4, 10, 128, 200})
      for (const std::int64_t count : {1, 2, 5, 27})
        for (const bool has_first : {true, false}) {
          const std::int64_t samples = 3, others = has_first ? count - 1 : count;
          const std::int64_t before = has_first ? width : 0, pairs = count * (count - 1) / 2;
          SimtArray first = random(Element::kFp32, samples * width);
          SimtArray rest = random(Element::kFp32, samples * others * width);
          const cuda::FeatureBatch x{has_first ? first.device_floats() : nullptr,
                                     rest.device_floats(), samples, count, width};
          SimtArray y = SimtArray::poisoned(Element::kFp32, samples * (before + pairs));
          cuda::pairwise_dots(x, y.device_floats(), nullptr);
          y.fetch();
          SimtArray dy = random(Element::kFp32, y.size());
          SimtArray dfirst = SimtArray::poisoned(Element::kFp32, samples * width);
          SimtArray drest = SimtArray::poisoned(Element::kFp32, rest.size());
          cuda::pairwise_dots_backward(x, dy.device_floats(),
                                       has_first ? dfirst.device_floats() : nullptr,
                                       drest.device_floats(), nullptr);
          dfirst.fetch();
          drest.fetch();
          std::vector<double> expected;
          std::vector<float> right_first, right_rest(static_cast<std::size_t>(rest.size()));
          for (std::int64_t sample = 0; sample < samples; ++sample) {
            const kernels::FeatureVectors of{
                has_first ? first.host_floats() + sample * width : nullptr,
                rest.host_floats() + sample * others * width, count, width};
            const auto vector = [&](std::int64_t i) {
              return has_first ? (i == 0 ? of.first : of.rest + (i - 1) * width)
                               : of.rest + i * width;
            };
            for (std::int64_t c = 0; c < before; ++c) expected.push_back(of.first[c]);
            for (std::int64_t i = 1; i < count; ++i)
              for (std::int64_t j = 0; j < i; ++j)
                expected.push_back(
                    std::inner_product(vector(i), vector(i) + width, vector(j), 0.0));
            const float* gradient = dy.host_floats() + sample * (before + pairs);
            right_first.insert(right_first.end(), gradient, gradient + (has_first ? width : 0));
            std::vector<float> scratch(kernels::pairwise_scratch(of));
            kernels::pairwise_dots_backward(
                of, gradient + before, scratch.data(),
                has_first ? right_first.data() + sample * width : nullptr,
                right_rest.data() + sample * others * width);
          }
          ASSERT_TRUE(close(y, expected, 4, 1e-5)) << count << " x " << width;
          if (has_first) {
            ASSERT_TRUE(same_bits(dfirst, SimtArray::of(Element::kFp32, right_first)));
          }
          ASSERT_TRUE(same_bits(drest, SimtArray::of(Element::kFp32, right_rest)));
        }
  });
}

// ---- Losses

constexpr std::int64_t kIgnored = -1;

struct LossCase {
  Element element;
  std::int64_t rows, columns, classes;
  float smoothing;
};

// Over all classes, in fp64.
struct RightLosses {
  std::vector<double> losses, gradient;

  RightLosses(const SimtArray& logits, const std::vector<std::int64_t>& targets, const LossCase& of,
              double scale) {
    for (std::int64_t row = 0; row < of.rows; ++row) {
      const auto z = [&](std::int64_t c) { return double{logits[row * of.columns + c]}; };
      double top = -INFINITY, sum = 0, mean = 0;
      for (std::int64_t c = 0; c < of.classes; ++c) top = std::max(top, z(c));
      for (std::int64_t c = 0; c < of.classes; ++c) sum += std::exp(z(c) - top), mean += z(c);
      mean /= static_cast<double>(of.classes);
      const std::int64_t target = targets[static_cast<std::size_t>(row)];
      const bool counts = target != kIgnored;
      const double log_sum = std::log(sum) + top, smoothing = of.smoothing;
      losses.push_back(
          counts ? (1 - smoothing) * (log_sum - z(target)) + smoothing * (log_sum - mean) : 0);
      for (std::int64_t c = 0; c < of.columns; ++c) {
        if (!counts || c >= of.classes) {
          gradient.push_back(0);
          continue;
        }
        const double share =
            std::exp(z(c) - top) / sum - smoothing / static_cast<double>(of.classes);
        gradient.push_back(scale * (share - (c == target ? 1 - smoothing : 0)));
      }
    }
  }
};

class CudaLosses : public CudaModel {
 protected:
  void for_each_case(const std::function<void(const LossCase&)>& body) {
    simt::in_every_order([&] {
      for (const Element element : kElements)
        for (const auto& [columns, classes] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                               {7, 7},
                                               {64, 61},
                                               {1000, 1000},
                                               {9001, 8999}})
          for (const float smoothing : {0.0f, 0.1f}) {
            SCOPED_TRACE(testing::Message() << "element " << int(element) << ", columns " << columns
                                            << ", smoothing " << smoothing);
            body({element, 5, columns, classes, smoothing});
            if (HasFatalFailure()) return;
          }
    });
  }

  std::vector<std::int64_t> some_targets(const LossCase& of) {
    std::vector<std::int64_t> targets = some_tokens(of.rows, of.classes - 1);
    targets[1] = kIgnored;
    return targets;
  }

  static void expect_losses(const SimtVector<double>& losses, const RightLosses& right) {
    for (std::size_t row = 0; row < losses.size(); ++row)
      ASSERT_NEAR(losses[row], right.losses[row], 2e-6 * std::max(1.0, right.losses[row])) << row;
  }
  static testing::AssertionResult is_gradient(const SimtArray& gradient, const RightLosses& right,
                                              double scale) {
    // fp32 compared with the target's 1; 16 bit rounded once.
    const bool wide = gradient.element() == Element::kFp32;
    return close(gradient, right.gradient, wide ? 16 : 0.52, scale * 2e-7);
  }
};

TEST_F(CudaLosses, CrossEntropyAloneIsRight) {
  for_each_case([&](const LossCase& of) {
    for (const bool from_scalars : {false, true}) {
      const SimtArray logits = random(of.element, of.rows * of.columns, 4);
      const std::vector<std::int64_t> classes = some_targets(of);
      SimtVector<std::int64_t> targets(classes);
      SimtVector<StepScalars> scalars(1,
                                      StepScalars{.inverse_valid_tokens = 0.125, .loss_scale = 16});
      const double scale = from_scalars ? 2 : 0.25;
      const kernels::CrossEntropy what{
          {of.columns, of.classes, 0, of.classes}, kIgnored, of.smoothing, 0.25f};
      const RightLosses right(logits, classes, of, scale);
      SimtArray z = SimtArray::of(of.element, logits.floats());
      SimtVector<double> losses(of.rows, NAN), alone(of.rows, NAN);
      cuda::cross_entropy_alone(of.element, z.device(), targets.device(), what, alone.device(),
                                of.rows, false, nullptr, nullptr);
      z.fetch();
      alone.fetch();
      ASSERT_TRUE(same_bits(z, logits));
      cuda::cross_entropy_alone(of.element, z.device(), targets.device(), what, losses.device(),
                                of.rows, true, from_scalars ? scalars.device() : nullptr, nullptr);
      z.fetch();
      losses.fetch();
      expect_losses(losses, right);
      ASSERT_TRUE(is_gradient(z, right, scale));
      for (std::int64_t row = 0; row < of.rows; ++row) ASSERT_EQ(losses[row], alone[row]);
    }
  });
}

// A rank's share of the classes; all ranks have equally many columns.
struct Rank {
  kernels::CrossEntropy what;
  SimtArray logits, top, exponentials, at_target, shifted;

  Rank(const SimtArray& whole, const LossCase& of, std::int64_t first, std::int64_t columns)
      : what{{columns, std::clamp<std::int64_t>(of.classes - first, 0, columns), first, of.classes},
             kIgnored,
             of.smoothing,
             0.5f},
        logits(cut(whole, of, first, columns)),
        top(SimtArray::poisoned(Element::kFp32, of.rows)),
        exponentials(SimtArray::poisoned(Element::kFp32, of.rows)),
        at_target(SimtArray::poisoned(Element::kFp32, of.rows)),
        shifted(SimtArray::poisoned(Element::kFp32, of.rows)) {}

  kernels::SoftmaxSums sums() {
    return {exponentials.device_floats(), at_target.device_floats(), shifted.device_floats()};
  }

  static SimtArray cut(const SimtArray& whole, const LossCase& of, std::int64_t first,
                       std::int64_t columns) {
    std::vector<float> own;
    for (std::int64_t row = 0; row < of.rows; ++row)
      for (std::int64_t c = first; c < first + columns; ++c)
        own.push_back(c < of.columns ? whole[row * of.columns + c] : 99.0f);
    return SimtArray::of(of.element, own);
  }
};

// The result of all_reduce_max and all_reduce_sum on every rank.
SimtArray largest_of(std::vector<Rank>& group, SimtArray Rank::* numbers) {
  std::vector<float> most(static_cast<std::size_t>((group[0].*numbers).size()), -INFINITY);
  for (Rank& rank : group) {
    (rank.*numbers).fetch();
    for (std::size_t i = 0; i < most.size(); ++i)
      most[i] = std::max(most[i], (rank.*numbers)[static_cast<std::int64_t>(i)]);
  }
  return SimtArray::of(Element::kFp32, most);
}
SimtArray sum_of(std::vector<Rank>& group, SimtArray Rank::* numbers) {
  std::vector<float> sum(static_cast<std::size_t>((group[0].*numbers).size()), 0);
  for (Rank& rank : group) {
    (rank.*numbers).fetch();
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += (rank.*numbers)[static_cast<std::int64_t>(i)];
  }
  return SimtArray::of(Element::kFp32, sum);
}

TEST_F(CudaLosses, DividedClassesGiveSameLoss) {
  for_each_case([&](const LossCase& of) {
    for (const int ranks : {1, 2, 3}) {
      const SimtArray whole = random(of.element, of.rows * of.columns, 4);
      const std::vector<std::int64_t> classes = some_targets(of);
      SimtVector<std::int64_t> targets(classes);
      const RightLosses right(whole, classes, of, 0.5);
      const std::int64_t columns = (of.columns + ranks - 1) / ranks;
      std::vector<Rank> group;
      for (int index = 0; index < ranks; ++index) {
        Rank& rank = group.emplace_back(whole, of, index * columns, columns);
        cuda::softmax_sums(of.element, rank.logits.device(), targets.device(), rank.what,
                           rank.top.device_floats(), rank.sums(), of.rows, nullptr);
      }
      SimtArray top = largest_of(group, &Rank::top);
      for (Rank& rank : group)
        cuda::rescale_sums(rank.top.device_floats(), top.device_floats(), rank.what, rank.sums(),
                           of.rows, nullptr);
      SimtArray exponentials = sum_of(group, &Rank::exponentials);
      SimtArray at_target = sum_of(group, &Rank::at_target);
      SimtArray shifted = sum_of(group, &Rank::shifted);
      const kernels::SoftmaxSums sums{exponentials.device_floats(), at_target.device_floats(),
                                      shifted.device_floats()};
      SimtVector<double> losses(of.rows, NAN);
      cuda::cross_entropy(top.device_floats(), targets.device(), group[0].what, sums,
                          losses.device(), of.rows, nullptr);
      losses.fetch();
      expect_losses(losses, right);
      std::vector<float> gradient(static_cast<std::size_t>(of.rows * of.columns));
      for (Rank& rank : group) {
        cuda::cross_entropy_gradient(of.element, rank.logits.device(), top.device_floats(),
                                     targets.device(), rank.what, sums, of.rows, nullptr, nullptr);
        rank.logits.fetch();
        ASSERT_TRUE(rank.logits.is_whole());
        for (std::int64_t i = 0; i < rank.logits.size(); ++i) {
          const std::int64_t row = i / columns, column = rank.what.at.first + i % columns;
          if (column >= of.columns) {
            ASSERT_EQ(rank.logits[i], 0.0f);
          } else {
            gradient[static_cast<std::size_t>(row * of.columns + column)] = rank.logits[i];
          }
        }
      }
      ASSERT_TRUE(is_gradient(SimtArray::of(of.element, gradient), right, 0.5));
    }
  });
}

TEST_F(CudaLosses, StepsOfAGroupOfOneHaveTheBitsOfOneKernel) {
  for_each_case([&](const LossCase& of) {
    SimtArray whole = random(of.element, of.rows * of.columns, 4);
    SimtVector<std::int64_t> targets(some_targets(of));
    Rank rank(whole, of, 0, of.columns);
    cuda::softmax_sums(of.element, rank.logits.device(), targets.device(), rank.what,
                       rank.top.device_floats(), rank.sums(), of.rows, nullptr);
    SimtVector<double> losses(of.rows, NAN), alone(of.rows, NAN);
    cuda::cross_entropy(rank.top.device_floats(), targets.device(), rank.what, rank.sums(),
                        losses.device(), of.rows, nullptr);
    cuda::cross_entropy_gradient(of.element, rank.logits.device(), rank.top.device_floats(),
                                 targets.device(), rank.what, rank.sums(), of.rows, nullptr,
                                 nullptr);
    cuda::cross_entropy_alone(of.element, whole.device(), targets.device(), rank.what,
                              alone.device(), of.rows, true, nullptr, nullptr);
    rank.logits.fetch();
    whole.fetch();
    losses.fetch();
    alone.fetch();
    ASSERT_TRUE(same_bits(rank.logits, whole));
    for (std::int64_t row = 0; row < of.rows; ++row) ASSERT_EQ(losses[row], alone[row]);
  });
}

TEST_F(CudaLosses, PropagatesNaN) {
  for (const Element element : kElements) {
    SimtArray z = SimtArray::of(element, std::vector<float>{1, 2, NAN, 4});
    SimtArray nan = SimtArray::poisoned(element, 4);  // all NaNs
    const kernels::CrossEntropy what{{4, 4, 0, 4}, kIgnored, 0, 1};
    SimtVector<std::int64_t> targets(1, 0);
    SimtVector<double> losses(1, 0.0);
    cuda::cross_entropy_alone(element, nan.device(), targets.device(), what, losses.device(), 1,
                              true, nullptr, nullptr);
    losses.fetch();
    EXPECT_TRUE(std::isnan(losses[0]));
    if (element != Element::kFp32) continue;
    cuda::cross_entropy_alone(element, z.device(), targets.device(), what, losses.device(), 1, true,
                              nullptr, nullptr);
    losses.fetch();
    EXPECT_TRUE(std::isnan(losses[0]));
  }
}

TEST_F(CudaLosses, LogisticLossIsRight) {
  simt::in_every_order([&] {
    for (const std::int64_t n : {0, 1, 300}) {
      SimtArray logits = random(Element::kFp32, n, 5);
      std::vector<float> values;
      for (std::int64_t i = 0; i < n; ++i)
        values.push_back(i % 7 == 3 ? -1.0f : static_cast<float>(i % 5) / 4);
      SimtArray labels = SimtArray::of(Element::kFp32, values);
      SimtArray gradient = SimtArray::poisoned(Element::kFp32, n);
      SimtVector<double> losses(n, NAN);
      cuda::logistic_loss(logits.device_floats(), labels.device_floats(), losses.device(), 0.5,
                          gradient.device_floats(), n, nullptr, nullptr);
      losses.fetch();
      std::vector<double> right;
      for (std::int64_t i = 0; i < n; ++i) {
        const double z = logits[i], y = labels[i];
        const double loss =
            y < 0 ? 0 : std::max(z, 0.0) - z * y + std::log1p(std::exp(-std::abs(z)));
        ASSERT_NEAR(losses[i], loss, 1e-14 * std::max(1.0, loss));
        right.push_back(y < 0 ? 0 : 0.5 * (1 / (1 + std::exp(-z)) - y));
      }
      gradient.fetch();
      ASSERT_TRUE(close(gradient, right, 0.51, 1e-15));
    }
  });
}

TEST_F(CudaLosses, SumsKeepTheirOrder) {
  simt::in_every_order([&] {
    for (const std::size_t n : {0, 1, 1024, 5000}) {
      std::vector<double> values(n);
      std::normal_distribution<double> normal;
      for (double& value : values) value = normal(generator_);
      SimtVector<double> of(values), sum(1, 0.5);
      cuda::add_sum(of.device(), sum.device(), static_cast<std::int64_t>(n), nullptr);
      sum.fetch();
      std::vector<double> threads(1024, 0.0), warps;
      for (std::size_t i = 0; i < n; ++i) threads[i % 1024] += values[i];
      const auto tree = [](std::vector<double> at) {
        for (std::size_t width = at.size() / 2; width > 0; width /= 2)
          for (std::size_t i = 0; i < width; ++i) at[i] += at[i + width];
        return at[0];
      };
      for (int warp = 0; warp < 32; ++warp)
        warps.push_back(tree({threads.begin() + 32 * warp, threads.begin() + 32 * warp + 32}));
      EXPECT_EQ(sum[0], 0.5 + tree(warps));
    }
  });
}

}  // namespace
}  // namespace strata
