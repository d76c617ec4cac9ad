// Three oracles: the formulas for one element after another in fp32, which must give the same bits
// on every instruction set; the formulas in double; PyTorch.
#include "strata/rowserver/rows/row_update.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "strata/base/every_target_test.h"
#include "strata/rowserver/rows/row_layout.h"

namespace strata::kernels {
namespace {

constexpr RowOptimizerKind kKinds[] = {
    RowOptimizerKind::kSgd,     RowOptimizerKind::kMomentum,
    RowOptimizerKind::kAdagrad, RowOptimizerKind::kRowWiseAdagrad,
    RowOptimizerKind::kAdam,    RowOptimizerKind::kAdamW,
    RowOptimizerKind::kFtrl};

int states_of(RowOptimizerKind kind, int width) {
  FeatureSpec spec;
  spec.width = width;
  spec.optimizer.kind = kind;
  return RowLayout(spec).num_states;
}

RowUpdate update_of(RowOptimizerKind kind, int t) {
  const bool decoupled = kind == RowOptimizerKind::kAdamW;
  return {.kind = kind,
          .rate = 0.125f,
          .epsilon = 0.001f,
          .weight_decay = decoupled || kind == RowOptimizerKind::kFtrl ? 0.0f : 0.25f,
          .momentum = 0.875f,
          .mean_kept = 0.75f,
          .mean_share = 0.25f,
          .square_kept = 0.9375f,
          .square_share = 0.0625f,
          .size = static_cast<float>(0.125 / (1 - std::pow(0.75, t))),
          .root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(0.9375, t))),
          .kept = decoupled ? 1 - 0.125f * 0.25f : 1.0f,
          .l1 = 0.0625f,
          .l2 = 0.5f};
}

template <typename T>
struct Row {
  std::vector<T> values, states;
};

// Computes element by element in precision T.
template <typename T>
void update_plainly(const RowUpdate& u, Row<T>& row, const std::vector<float>& gradient) {
  const std::size_t width = row.values.size();
  std::vector<T> g(gradient.begin(), gradient.end());
  if (u.weight_decay != 0)
    for (std::size_t i = 0; i < width; ++i) g[i] += T(u.weight_decay) * row.values[i];
  T sums[16] = {};
  for (std::size_t i = 0; i < width; ++i) sums[i % 16] += g[i] * g[i];
  for (int half : {8, 4, 2, 1})
    for (int k = 0; k < half; ++k) sums[k] += sums[k + half];
  if (u.kind == RowOptimizerKind::kRowWiseAdagrad) row.states[0] += sums[0] / T(width);
  for (std::size_t i = 0; i < width; ++i) {
    T& w = row.values[i];
    const T rate = u.rate, epsilon = u.epsilon;
    switch (u.kind) {
      case RowOptimizerKind::kSgd:
        w -= rate * g[i];
        break;
      case RowOptimizerKind::kMomentum:
        row.states[i] = T(u.momentum) * row.states[i] + g[i];
        w -= rate * row.states[i];
        break;
      case RowOptimizerKind::kAdagrad:
        row.states[i] += g[i] * g[i];
        w -= rate * g[i] / (std::sqrt(row.states[i]) + epsilon);
        break;
      case RowOptimizerKind::kRowWiseAdagrad:
        w -= rate * g[i] / (std::sqrt(row.states[0]) + epsilon);
        break;
      case RowOptimizerKind::kAdam:
      case RowOptimizerKind::kAdamW: {
        T &m = row.states[i], &v = row.states[width + i];
        m = T(u.mean_kept) * m + T(u.mean_share) * g[i];
        v = T(u.square_kept) * v + T(u.square_share) * g[i] * g[i];
        w = w * T(u.kept) - T(u.size) * m / (std::sqrt(v) * T(u.root_scale) + epsilon);
        break;
      }
      case RowOptimizerKind::kFtrl: {
        T &z = row.states[i], &n = row.states[width + i];
        const T grown = n + g[i] * g[i];
        z = z + g[i] - (std::sqrt(grown) - std::sqrt(n)) / rate * w;
        n = grown;
        const T l1 = u.l1;
        w = std::abs(z) <= l1
                ? T(0)
                : ((z < 0 ? -l1 : l1) - z) / ((std::sqrt(n) + epsilon) / rate + T(u.l2));
        break;
      }
    }
  }
}

Row<float> random_row(RowOptimizerKind kind, int width, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  Row<float> row{std::vector<float>(width), std::vector<float>(states_of(kind, width))};
  for (float& value : row.values) value = uniform(random);
  for (float& state : row.states) state = 0.5f + 0.25f * uniform(random);
  return row;
}

TEST(UpdateRow, MatchesBitsOfPlainFp32OnEveryInstructionSet) {
  on_every_target([] {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (const RowOptimizerKind kind : kKinds) {
      for (int width = 1; width <= 257; ++width) {
        Row<float> row = random_row(kind, width, random), plain = row;
        row.values.push_back(42);  // padding after the row
        row.states.push_back(43);
        for (int t = 1; t <= 3; ++t) {
          std::vector<float> gradient(width);
          for (float& g : gradient) g = uniform(random);
          const RowUpdate u = update_of(kind, t);
          update_row(u, row.values.data(), gradient.data(), row.states.data(), row.values.data(),
                     width);
          update_plainly(u, plain, gradient);
        }
        ASSERT_EQ(row.values.back(), 42);
        ASSERT_EQ(row.states.back(), 43);
        row.values.pop_back();
        row.states.pop_back();
        ASSERT_EQ(row.values, plain.values) << name_of(kind) << " " << width;
        ASSERT_EQ(row.states, plain.states) << name_of(kind) << " " << width;
      }
    }
  });
}

TEST(UpdateRow, MatchesFormulasInDouble) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const RowOptimizerKind kind : kKinds) {
    for (int width = 1; width <= 257; ++width) {
      Row<float> row = random_row(kind, width, random);
      Row<double> exact{{row.values.begin(), row.values.end()},
                        {row.states.begin(), row.states.end()}};
      std::vector<float> gradient(width);
      for (float& g : gradient) g = uniform(random);
      const RowUpdate u = update_of(kind, 2);
      update_row(u, row.values.data(), gradient.data(), row.states.data(), row.values.data(),
                 width);
      update_plainly(u, exact, gradient);
      for (int i = 0; i < width; ++i)  // magnitude of the added terms, which may cancel
        ASSERT_NEAR(row.values[i], exact.values[i], 1e-6 * (1 + std::abs(exact.values[i])));
      for (std::size_t i = 0; i < row.states.size(); ++i)
        ASSERT_NEAR(row.states[i], exact.states[i], 1e-6 * (1 + std::abs(exact.states[i])));
    }
  }
}

TEST(UpdateRow, WritesOneBitPatternForNan) {
  on_every_target([] {
    for (const RowOptimizerKind kind : kKinds) {
      std::vector<float> values(5, 1), states(10, 1);
      const std::vector<float> gradient(5, std::bit_cast<float>(0xFFC12345u));
      update_row(update_of(kind, 1), values.data(), gradient.data(), states.data(), values.data(),
                 5);
      for (const float value : values)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(value), 0x7FC00000u) << name_of(kind);
    }
  });
}

}  // namespace
}  // namespace strata::kernels
