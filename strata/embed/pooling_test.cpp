// Compares pooling and its gradients with explicit sums over samples and with finite differences.
#include "strata/embed/pooling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

namespace strata {
namespace {

constexpr Pooling kAll[] = {Pooling::kSum,      Pooling::kMean, Pooling::kSqrtN,   Pooling::kMax,
                            Pooling::kWeighted, Pooling::kLast, Pooling::kSequence};

// Three samples: {7, 3, 7}, none, {max, 0, 3, 3}.
IdLists example_lists() {
  return {.offsets = {0, 3, 3, 7},
          .ids = {7, 3, 7, ~std::uint64_t{0}, 0, 3, 3},
          .weights = {0.5f, -1, 2, 0.25f, 3, 1, 1.5f}};
}

TEST(DistinctIds, ListIdsAscendingAndIndexEveryOccurrence) {
  const IdLists a = example_lists(), b{.offsets = {0, 2}, .ids = {9, 3}};
  const IdLists* const lists[] = {&a, &b};
  const DistinctIds distinct = distinct_ids(lists);
  EXPECT_EQ(distinct.ids, (std::vector<std::uint64_t>{0, 3, 7, 9, ~std::uint64_t{0}}));
  EXPECT_EQ(distinct.row_of, (std::vector<std::int32_t>{2, 1, 2, 4, 0, 1, 1, 3, 1}));
  EXPECT_TRUE(distinct_ids({}).ids.empty());
}

TEST(DistinctIds, EqualSortedSetOfManyIds) {
  std::mt19937_64 random(2);
  for (const int count : {1, 3, 17, 500, 20000})
    for (const std::uint64_t most : {std::uint64_t{1}, std::uint64_t{300}, ~std::uint64_t{0}}) {
      IdLists lists;
      std::set<std::uint64_t> expected;
      for (int i = 0; i < count; ++i) {
        const std::uint64_t id = most - random() % most * (random() % 4 > 0);
        lists.ids.push_back(id);
        expected.insert(id);
      }
      const IdLists* const list = &lists;
      const DistinctIds distinct = distinct_ids({&list, 1});
      EXPECT_TRUE(std::ranges::equal(distinct.ids, expected)) << count << ' ' << most;
      for (int i = 0; i < count; ++i)
        ASSERT_EQ(distinct.ids[distinct.row_of[i]], lists.ids[i]) << count << ' ' << most;
    }
}

// Computes each kind in double precision, except kMax, which the caller computes.
std::vector<double> expected(const PooledFeature& feature, const std::vector<int>& rows_of_sample,
                             const std::vector<double>& weights, const std::vector<float>& rows) {
  std::vector<double> pooled(feature.width(), 0.0);
  const auto count = static_cast<int>(rows_of_sample.size());
  for (int i = 0; i < feature.row_width; ++i) {
    const auto at = [&](int k) { return double{rows[rows_of_sample[k] * feature.row_width + i]}; };
    if (feature.pooling == Pooling::kSequence) {
      for (int k = 0; k < std::min(count, feature.length); ++k)
        pooled[k * feature.row_width + i] = at(std::max(0, count - feature.length) + k);
      continue;
    }
    for (int k = 0; k < count; ++k) {
      const double share = feature.pooling == Pooling::kMean       ? 1.0 / count
                           : feature.pooling == Pooling::kSqrtN    ? 1 / std::sqrt(count)
                           : feature.pooling == Pooling::kWeighted ? weights[k]
                           : feature.pooling == Pooling::kLast     ? (k + 1 == count ? 1 : 0)
                                                                   : 1;
      if (feature.pooling == Pooling::kMax) {
        pooled[i] = k == 0 ? at(k) : std::max(pooled[i], at(k));
      } else {
        pooled[i] += share * at(k);
      }
    }
  }
  return pooled;
}

class EveryPooling : public ::testing::TestWithParam<std::tuple<Pooling, int>> {
 protected:
  PooledFeature feature{
      .pooling = std::get<0>(GetParam()), .row_width = std::get<1>(GetParam()), .length = 3};
  IdLists lists = example_lists();
  const IdLists* const list = &lists;
  DistinctIds distinct = distinct_ids({&list, 1});
  std::vector<float> rows = [&] {
    std::mt19937 random(3);
    std::vector<float> values(distinct.ids.size() * feature.row_width);
    for (float& value : values) value = std::normal_distribution<float>()(random);
    return values;
  }();
  std::int64_t stride = feature.width() + 5;

  std::vector<float> pooled() const {
    std::vector<float> out(3 * stride, 99.0f);
    pool(feature, lists, distinct.row_of, rows.data(), out.data(), stride);
    return out;
  }
};

TEST_P(EveryPooling, MatchesItsDefinition) {
  const std::vector<float> out = pooled();
  const std::vector<std::vector<int>> samples = {{2, 1, 2}, {}, {3, 0, 1, 1}};
  const std::vector<std::vector<double>> weights = {{0.5, -1, 2}, {}, {0.25, 3, 1, 1.5}};
  for (int s = 0; s < 3; ++s) {
    const std::vector<double> want = expected(feature, samples[s], weights[s], rows);
    for (int i = 0; i < feature.width(); ++i)
      EXPECT_NEAR(out[s * stride + i], want[i], 1e-5) << s << ' ' << i;
    for (std::int64_t i = feature.width(); i < stride; ++i)
      EXPECT_EQ(out[s * stride + i], 99) << "of other features";
  }
}

TEST_P(EveryPooling, GradientsMatchFiniteDifferences) {
  std::vector<float> gradients(3 * stride);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = std::sin(0.7f * i + 1);
  std::vector<float> row_gradients(rows.size(), 0.0f);
  add_row_gradients(feature, lists, distinct.row_of, rows.data(), gradients.data(), stride,
                    row_gradients.data());
  const auto loss = [&] {
    const std::vector<float> out = pooled();
    double sum = 0;
    for (int s = 0; s < 3; ++s)
      for (int i = 0; i < feature.width(); ++i)
        sum += double{out[s * stride + i]} * gradients[s * stride + i];
    return sum;
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const float before = rows[i];
    constexpr float kStep = 1e-2f;
    rows[i] = before + kStep;
    const double above = loss();
    rows[i] = before - kStep;
    EXPECT_NEAR(row_gradients[i], (above - loss()) / (2 * kStep), 2e-3) << i;
    rows[i] = before;
  }
}

INSTANTIATE_TEST_SUITE_P(Pooling, EveryPooling,
                         ::testing::Combine(::testing::ValuesIn(kAll), ::testing::Values(1, 4, 7)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  std::to_string(std::get<1>(info.param));
                         });

// One id in each sample is computed apart; it equals the sums of a batch with another sample.
TEST(Pooling, OneIdASampleEqualsGeneralCase) {
  for (const Pooling pooling : kAll)
    for (const int width : {1, 8, 13, 16, 32, 64}) {
      SCOPED_TRACE(std::string(name_of(pooling)) + " " + std::to_string(width));
      const PooledFeature feature{.pooling = pooling, .row_width = width};
      const IdLists one{.offsets = {0, 1, 2, 3, 4}, .ids = {7, 3, 7, 9}};
      IdLists more = one;
      more.offsets.push_back(4);  // a sample without ids
      const IdLists* const list = &one;
      const DistinctIds distinct = distinct_ids({&list, 1});
      std::vector<float> rows(3 * width), gradients(5 * (width + 2));
      for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(0.3f * i);
      rows.back() = -0.0f;
      for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = std::cos(0.7f * i);
      const auto pooled = [&](const IdLists& lists) {
        std::vector<float> out(4 * (width + 2) + width, 5.0f);
        pool(feature, lists, distinct.row_of, rows.data(), out.data(), width + 2);
        out.resize(4 * (width + 2));
        return out;
      };
      const auto row_gradients = [&](const IdLists& lists) {
        std::vector<float> sums(rows.size(), 0.5f);
        add_row_gradients(feature, lists, distinct.row_of, rows.data(), gradients.data(), width + 2,
                          sums.data());
        return sums;
      };
      const std::vector<float> quick = pooled(one), general = pooled(more);
      EXPECT_EQ(std::memcmp(quick.data(), general.data(), quick.size() * sizeof(float)), 0);
      EXPECT_EQ(pooled(one)[width + 2], rows[0]);
      EXPECT_EQ(row_gradients(one), row_gradients(more));
      EXPECT_EQ(row_gradients(one)[0], 0.5f + gradients[width + 2]);
      // As many ids as samples, but not one each.
      const IdLists uneven{.offsets = {0, 2, 2, 3, 4}, .ids = one.ids};
      IdLists uneven_more = uneven;
      uneven_more.offsets.push_back(4);
      EXPECT_EQ(pooled(uneven), pooled(uneven_more));
      EXPECT_EQ(row_gradients(uneven), row_gradients(uneven_more));
    }
}

TEST(Pooling, MaximumOfEqualRowsSendsGradientToFirst) {
  const IdLists lists{.offsets = {0, 2}, .ids = {5, 1}};
  const IdLists* const list = &lists;
  const DistinctIds distinct = distinct_ids({&list, 1});
  const float rows[] = {2, 2}, gradient[] = {1};
  float row_gradients[] = {0, 0};
  add_row_gradients({.pooling = Pooling::kMax, .row_width = 1}, lists, distinct.row_of, rows,
                    gradient, 1, row_gradients);
  EXPECT_EQ(row_gradients[1], 1);  // of id 5, which is the first row
  EXPECT_EQ(row_gradients[0], 0);
}

}  // namespace
}  // namespace strata
