#include "strata/embed/row_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

using Ids = std::vector<std::uint64_t>;
constexpr std::uint64_t kLargest = ~std::uint64_t{0};

FeatureSpec feature(const std::string& name, int width) {
  FeatureSpec spec;
  spec.name = name;
  spec.width = width;
  spec.optimizer.kind = RowOptimizerKind::kSgd;
  return spec;
}

std::vector<float> read(const RowTable& table, int feature, const Ids& ids) {
  std::vector<float> rows(ids.size() * table.features()[feature].width);
  table.read(feature, ids, rows);
  return rows;
}

// Every element of the gradient of id `ids[i]` is i + 1.
void update(RowTable& table, std::int64_t step, int feature, const Ids& ids) {
  const int width = table.features()[feature].width;
  std::vector<float> gradients(ids.size() * width);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = static_cast<float>(i / width + 1);
  table.update(step, feature, ids, gradients, 1.0);
}

Ids count_up(std::uint64_t first, std::size_t n) {
  Ids ids(n);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

TEST(RowTable, ReadsFirstValuesThatDependOnTheIdAloneAndCreatesNoRow) {
  const RowTable a({feature("user", 8), feature("item", 8)}), b({feature("user", 8)});
  const Ids ids = {0, 1, 77, kLargest};
  EXPECT_EQ(read(a, 0, ids), read(b, 0, ids));
  EXPECT_NE(read(a, 0, ids), read(a, 1, ids));
  std::vector<float> rows = read(a, 0, ids);
  EXPECT_EQ(read(a, 0, {77}), std::vector<float>(rows.begin() + 16, rows.begin() + 24));
  for (const float value : rows) EXPECT_LT(std::abs(value), 0.01f);
  std::sort(rows.begin(), rows.end());
  EXPECT_EQ(std::unique(rows.begin(), rows.end()), rows.end());
  EXPECT_EQ(a.counts(0).rows, 0);
}

TEST(RowTable, UpdatesTheRowsOfAnUpdateAndNoOthers) {
  RowTable table({feature("user", 5), feature("item", 5)});
  const Ids ids = {0, 3, 4, kLargest};
  const std::vector<float> before = read(table, 0, ids), others = read(table, 1, ids);
  update(table, 0, 0, {0, 3, kLargest});
  const std::vector<float> after = read(table, 0, ids);
  const float gradients[] = {1, 2, 0, 3};
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_EQ(after[i], before[i] - 0.05f * gradients[i / 5]);
  EXPECT_EQ(read(table, 1, ids), others);
  EXPECT_EQ(table.counts(0).rows, 3);
  EXPECT_EQ(table.info(0, 3)->hits, 1);
  EXPECT_FALSE(table.info(0, 4).has_value());
}

TEST(RowTable, HoldsManyRowsAndFindsEachOfThem) {
  RowTable table({feature("user", 1)});
  const std::size_t n = 200'000;
  const Ids ids = count_up(kLargest - n + 1, n);
  const std::vector<float> first = read(table, 0, ids);
  for (std::int64_t step = 0; step < 3; ++step)
    for (std::size_t begin = 0; begin < n; begin += 1000)
      update(table, step * 1000 + static_cast<std::int64_t>(begin / 1000), 0,
             Ids(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                 ids.begin() + static_cast<std::ptrdiff_t>(begin + 1000)));
  EXPECT_EQ(table.counts(0).rows, n);
  const std::vector<float> rows = read(table, 0, ids);
  for (std::size_t i = 0; i < n; ++i) {
    float expected = first[i];
    for (int k = 0; k < 3; ++k) expected -= 0.05f * static_cast<float>(i % 1000 + 1);
    ASSERT_EQ(rows[i], expected) << i;
  }
}

}  // namespace
}  // namespace strata
