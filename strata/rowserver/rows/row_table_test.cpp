#include "strata/rowserver/rows/row_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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

TEST(RowTable, ReadsInitialValuesWithoutCreatingRow) {
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

TEST(RowTable, FeaturesAreIndependentWhileMemoryHasRoomForTheirRows) {
  const std::vector<FeatureSpec> features = {feature("user", 8), feature("item", 4)};
  EXPECT_TRUE(RowTable(features).features_are_independent(std::array<std::size_t, 2>{1000, 1000}));
  RowTable table(features, {.memory_bytes = 100 * RowLayout(features[0]).cost_bytes()});
  update(table, 0, 0, count_up(0, 40));
  table.end_step(0);
  const std::int64_t item = RowLayout(features[1]).cost_bytes();
  const auto left = static_cast<std::size_t>((table.used_bytes() / 40 * 60 - item) / item);
  EXPECT_TRUE(table.features_are_independent(std::array<std::size_t, 2>{0, left}));
  EXPECT_FALSE(table.features_are_independent(std::array<std::size_t, 2>{0, left + 2}));
  EXPECT_FALSE(table.features_are_independent(std::array<std::size_t, 2>{61, 0}));
  const ScratchFolder folder;
  const RowTable cold(features, {.cold = folder.path("cold")});
  EXPECT_FALSE(cold.features_are_independent(std::array<std::size_t, 2>{1, 1}));
}

TEST(RowTable, UpdatesOnlyRowsOfAnUpdate) {
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

TEST(RowTable, FindsEachOfManyRows) {
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

// ---- Optimizers, against PyTorch 2.13 in double: lr 1/8, weight decay 1/4, three steps ----------

struct TorchCase {
  RowOptimizerOptions options;
  double expected[3];
};

TEST(RowTable, MatchesUpdatesOfPyTorch) {
  RowOptimizerOptions base;
  base.learning_rate = 0.125;
  base.weight_decay = 0.25;
  base.momentum = 0.875;
  base.beta1 = 0.75;
  base.beta2 = 0.9375;
  base.initial_accumulator = 0.0625;
  const auto of = [&](RowOptimizerKind kind, double epsilon) {
    RowOptimizerOptions options = base;
    options.kind = kind;
    options.epsilon = epsilon;
    return options;
  };
  const TorchCase cases[] = {
      {of(RowOptimizerKind::kSgd, 0), {0.5160675048828125, -1.3429183959960938, 1.82794189453125}},
      {of(RowOptimizerKind::kMomentum, 0),
       {0.5100860595703125, -1.1613388061523438, 1.42120361328125}},
      {of(RowOptimizerKind::kAdagrad, 1e-10),
       {0.47932216647358472, -1.2194616370645039, 1.8723110788207806}},
      {of(RowOptimizerKind::kAdam, 1e-3),
       {0.44652361126139772, -1.0859077582731214, 1.7328078790987147}},
      {of(RowOptimizerKind::kAdamW, 1e-3),
       {0.45640012033676713, -1.051173250624178, 1.6185617141496147}},
  };
  const float gradients[3][3] = {{0.25f, -0.5f, 1.0f}, {-0.75f, 0.125f, 0.5f}, {0, 2.0f, -1.5f}};
  for (const TorchCase& one : cases) {
    FeatureSpec spec = feature("user", 3);
    spec.optimizer = one.options;
    RowTable table({spec});
    // PyTorch started at these values with zero states.
    std::vector<float> payload = {0.5f, -1.25f, 2.0f};
    payload.resize(payload.size() + RowLayout(spec).num_states,
                   one.options.kind == RowOptimizerKind::kAdagrad ? 0.0625f : 0.0f);
    table.insert_row({.id = 9, .payload = std::as_bytes(std::span(payload))});
    for (std::int64_t step = 1; step <= 3; ++step)
      table.update(step * 7, 0, Ids{9}, gradients[step - 1], 1.0);
    const std::vector<float> row = read(table, 0, {9});
    for (int i = 0; i < 3; ++i)
      EXPECT_NEAR(row[i], one.expected[i], 1e-6 * std::abs(one.expected[i]))
          << name_of(one.options.kind);
  }
}

TEST(RowTable, ScalesLearningRateOfAnUpdate) {
  RowTable table({feature("user", 2)});
  const std::vector<float> before = read(table, 0, {5});
  table.update(0, 0, Ids{5}, std::vector<float>{1, 2}, 0.5);
  const std::vector<float> after = read(table, 0, {5});
  EXPECT_EQ(after[0], before[0] - 0.025f);
  EXPECT_EQ(after[1], before[1] - 0.025f * 2);
}

// ---- Initial values
// ----------------------------------------------------------------------------------

TEST(RowTable, DrawsInitialValuesFromConfiguredDistribution) {
  FeatureSpec uniform = feature("uniform", 64), normal = feature("normal", 63),
              zeros = feature("zeros", 3);
  uniform.init.scale = 0.5;
  normal.init = {.kind = RowInit::Kind::kNormal, .scale = 2.0};
  zeros.init.kind = RowInit::Kind::kZeros;
  const RowTable table({uniform, normal, zeros});
  const Ids ids = count_up(1'000'000'000'000, 4000);
  const auto moments = [](const std::vector<float>& values) {
    double sum = 0, squares = 0, fourth = 0;
    for (const double v : values) sum += v, squares += v * v, fourth += v * v * v * v;
    const auto n = static_cast<double>(values.size());
    return std::array{sum / n, squares / n, fourth / n};
  };
  const auto u = moments(read(table, 0, ids)), n = moments(read(table, 1, ids));
  EXPECT_NEAR(u[0], 0, 0.003);
  EXPECT_NEAR(u[1], 0.25 / 3, 0.001);
  EXPECT_NEAR(u[2], 0.0625 / 5, 0.0002);
  EXPECT_NEAR(n[0], 0, 0.02);
  EXPECT_NEAR(n[1], 4, 0.05);
  EXPECT_NEAR(n[2], 48, 1.5);
  EXPECT_EQ(read(table, 2, {1, 2}), std::vector<float>(6));
  const RowTable other({uniform}, {.seed = 2});
  EXPECT_NE(read(other, 0, {1}), read(table, 0, {1}));
}

// ---- Memory -------------------------------------------------------------------------------------

TEST(RowTable, UsesAtMost26BytesPerRowInAdditionToPayload) {
  for (const std::size_t n : {100'000, 237'000, 500'000}) {
    FeatureSpec spec = feature("user", 4);
    spec.optimizer.kind = RowOptimizerKind::kAdagrad;
    RowTable table({spec});
    std::vector<float> gradients(4 * 1000, 1.0f);
    for (std::size_t begin = 0; begin < n; begin += 1000)
      table.update(static_cast<std::int64_t>(begin), 0, count_up(begin * 1'000'003, 1000),
                   gradients, 1.0);
    ASSERT_EQ(table.counts(0).rows, n);
    const double overhead = static_cast<double>(table.bytes()) / static_cast<double>(n) - 32;
    EXPECT_LE(overhead, 26) << n;
    EXPECT_GE(overhead, 22) << n;  // otherwise bytes are missing from the count
  }
}

TEST(RowTable, StaysWithinBudgetAndReturnsMemory) {
  RowTable table({feature("user", 4), feature("item", 60)}, {.memory_bytes = 8 << 20});
  std::vector<float> small(4 * 1000, 1.0f), large(60 * 1000, 1.0f);
  std::int64_t step = 0;
  for (; step < 400; ++step) {  // first one feature fills the table, then the other
    table.update(step, 0, count_up(step * 1000, 1000), small, 1.0);
    table.end_step(step);
    ASSERT_LE(table.used_bytes(), 8 << 20);
  }
  EXPECT_GT(table.counts(0).rows, 190'000);
  for (; step < 800; ++step) {
    table.update(step, 1, count_up(step * 1000, 1000), large, 1.0);
    table.end_step(step);
    ASSERT_LE(table.used_bytes(), 8 << 20);
  }
  EXPECT_GT(table.used_bytes(), (8 << 20) - 300);
  EXPECT_LT(table.counts(0).rows, 20'000);
  // in addition to the budget: memory that trim() does not return yet
  EXPECT_LT(table.bytes(), (8 << 20) + (5 << 20));
  EXPECT_EQ(table.counts(0).evicted + table.counts(1).evicted,
            800'000 - table.counts(0).rows - table.counts(1).rows);
}

// ---- Admission ----------------------------------------------------------------------------------

TEST(RowTable, AdmitsIdAtThirdUpdate) {
  for (const auto filter : {RowAdmission::Filter::kExact, RowAdmission::Filter::kBloom}) {
    FeatureSpec spec = feature("user", 2);
    spec.admission = {.filter = filter, .threshold = 3};
    RowTable table({spec});
    for (std::int64_t step = 0; step < 2; ++step) {
      update(table, step, 0, {4, 5});
      EXPECT_EQ(read(table, 0, {4, 5}), std::vector<float>(4));
      EXPECT_EQ(table.counts(0).rows, 0);
    }
    EXPECT_EQ(table.counts(0).refused, 4);
    update(table, 2, 0, {5, 6});
    const RowTable plain({feature("user", 2)});
    const std::vector<float> first = read(plain, 0, {5}), row = read(table, 0, {5, 4, 6});
    EXPECT_EQ(row[0], first[0] - 0.05f);  // only the third gradient was applied
    EXPECT_EQ(row[1], first[1] - 0.05f);
    EXPECT_EQ(std::vector<float>(row.begin() + 2, row.end()), std::vector<float>(4));
    EXPECT_EQ(table.counts(0).rows, 1);
    EXPECT_EQ(table.counts(0).admitted, 1);
    EXPECT_EQ(table.info(0, 5)->hits, 1);
  }
}

TEST(RowTable, SmallBloomFilterNeverCountsTooFew) {
  FeatureSpec spec = feature("user", 1);
  spec.admission = {.filter = RowAdmission::Filter::kBloom, .threshold = 2};
  RowTable table({spec}, {.bloom_bytes = 64});
  std::vector<float> gradients(500, 1.0f);
  table.update(0, 0, count_up(0, 500), gradients, 1.0);
  table.update(1, 0, count_up(0, 500), gradients, 1.0);
  EXPECT_EQ(table.counts(0).rows, 500);
}

// ---- Evictions ----------------------------------------------------------------------------------

// A budget of 100 rows of 26 + 4 bytes.
RowTable hundred_rows(RowEviction eviction) {
  FeatureSpec spec = feature("user", 1);
  spec.eviction = eviction;
  return RowTable({spec}, {.memory_bytes = 3000});
}

TEST(RowTable, ClockEvictsRowsWithoutRecentUpdate) {
  RowTable table = hundred_rows({});
  update(table, 0, 0, count_up(0, 100));
  // the hand clears the marks of all hundred rows, then evicts the first
  update(table, 1, 0, {100});
  EXPECT_FALSE(table.info(0, 0).has_value());
  update(table, 2, 0, {1, 2, 3, 99});
  update(table, 3, 0, {101});
  // Row 99 moved to the place of row 0. It and three more rows were updated since then; row 4 was
  // not.
  EXPECT_FALSE(table.info(0, 4).has_value());
  for (const std::uint64_t id : {1, 2, 3, 5, 99, 100, 101})
    EXPECT_TRUE(table.info(0, id).has_value()) << id;
  EXPECT_EQ(table.counts(0).rows, 100);
  EXPECT_EQ(table.counts(0).evicted, 2);
}

TEST(RowTable, LfuEvictsLeastUpdatedOfSixteen) {
  RowTable table = hundred_rows({.policy = RowEviction::Policy::kLeastFrequent});
  update(table, 0, 0, count_up(0, 100));
  Ids often = count_up(0, 100);
  often.erase(often.begin() + 7);
  for (std::int64_t step = 1; step < 4; ++step) update(table, step, 0, often);
  update(table, 4, 0, {100});
  EXPECT_FALSE(table.info(0, 7).has_value());
  EXPECT_EQ(table.counts(0).evicted, 1);
}

TEST(RowTable, EvictedRowRestartsFromInitialValues) {
  RowTable table = hundred_rows({});
  const std::vector<float> first = read(table, 0, {0});
  update(table, 0, 0, count_up(0, 100));
  update(table, 1, 0, {500});
  ASSERT_FALSE(table.info(0, 0).has_value());
  EXPECT_EQ(read(table, 0, {0}), first);
  update(table, 2, 0, {0});
  EXPECT_EQ(read(table, 0, {0})[0], first[0] - 0.05f);
  EXPECT_EQ(table.info(0, 0)->hits, 1);
}

TEST(RowTable, DropsExpiredRows) {
  FeatureSpec spec = feature("user", 1);
  spec.eviction.steps_to_live = 8;
  spec.admission = {.filter = RowAdmission::Filter::kExact, .threshold = 2};
  RowTable table({spec});
  update(table, 0, 0, {1, 2, 3});
  update(table, 1, 0, {1, 2});  // id 3 stays a candidate
  for (std::int64_t step = 2; step <= 14; ++step) {
    update(table, step, 0, {2});
    table.end_step(step);
    if (step < 8) {
      EXPECT_TRUE(table.info(0, 3).has_value());
    }
    if (step < 9) {
      EXPECT_TRUE(table.info(0, 1).has_value());
    }
  }
  EXPECT_FALSE(table.info(0, 1).has_value());
  EXPECT_FALSE(table.info(0, 3).has_value());
  EXPECT_TRUE(table.info(0, 2).has_value());
  EXPECT_EQ(table.counts(0).expired, 2);
}

// ---- Queries
// -----------------------------------------------------------------------------------------

TEST(RowTable, ReportsInfoOfRow) {
  FeatureSpec spec = feature("user", 2);
  spec.optimizer.kind = RowOptimizerKind::kAdagrad;
  RowTable table({spec});
  for (std::int64_t step = 3; step < 9; ++step) update(table, step, 0, {8});
  update(table, 9, 0, {7});
  const RowInfo info = *table.info(0, 8);
  EXPECT_EQ(info.tier, RowTier::kMemory);
  EXPECT_EQ(info.step, 8);
  EXPECT_EQ(info.hits, 6);
  EXPECT_EQ(info.values, read(table, 0, {8}));
  EXPECT_EQ(info.states, std::vector<float>(2, 6.0f));
  const std::vector<HotId> hot = table.hottest(0, 5).ids();
  ASSERT_EQ(hot.size(), 2u);
  EXPECT_EQ(hot[0].id, 8u);
  EXPECT_EQ(hot[0].hits, 6);
  EXPECT_EQ(table.hottest(0, 1).ids().size(), 1u);
  EXPECT_EQ(table.hottest(0, 1).rows, 2);
  EXPECT_EQ(table.hottest(0, 1).updates, 7);
  EXPECT_EQ(table.last_counts()[0].rows, 0) << "the step continues";
  table.end_step(9);
  EXPECT_EQ(table.last_counts()[0].rows, 2);
  EXPECT_EQ(table.last_counts()[0].bytes, table.counts(0).bytes);
  RowTable again({spec});
  table.for_each_row([&](const RowRecord& row) { again.insert_row(row); });
  again.restore_bookkeeping(table.bookkeeping(), RowTable::Bookkeeping::kWhole);
  EXPECT_EQ(again.last_counts()[0].rows, 2) << "as a snapshot has them";
}

TEST(RowTable, DigestIgnoresOrderOfRows) {
  const std::vector<FeatureSpec> features = {feature("user", 2), feature("item", 2)};
  RowTable a(features), b(features);
  const std::vector<float> gradient(2, 2.0f);
  a.update(0, 0, Ids{1}, gradient, 1.0);
  a.update(1, 0, Ids{2}, gradient, 1.0);
  a.update(1, 1, Ids{1}, gradient, 1.0);
  std::vector<RowRecord> rows;
  std::vector<std::vector<std::byte>> payloads;
  a.for_each_row([&](const RowRecord& row) {
    rows.push_back(row);
    payloads.emplace_back(row.payload.begin(), row.payload.end());
  });
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NE(a.digest(), b.digest());
  for (std::size_t i = rows.size(); i-- > 0;) {
    rows[i].payload = payloads[i];
    b.insert_row(rows[i]);
  }
  EXPECT_EQ(a.digest(), b.digest());
  EXPECT_EQ(a.digest(0), b.digest(0));
  EXPECT_NE(a.digest(0), a.digest(1));
  b.update(2, 1, Ids{1}, std::vector<float>{0, 0}, 1.0);  // only the step differs
  EXPECT_NE(a.digest(1), b.digest(1));
}

// ---- Refusals -----------------------------------------------------------------------------------

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(RowTable, RefusesRowOfAnotherWidth) {
  RowTable table({feature("user", 2)});
  const std::vector<float> three(3);
  const std::string error =
      refusal([&] { table.insert_row({.id = 6, .payload = std::as_bytes(std::span(three))}); });
  EXPECT_NE(error.find("feature 'user', id 6: a row of another width"), std::string::npos) << error;
  EXPECT_NE(error.find("8 bytes: fp32 [2], sgd"), std::string::npos) << error;
  EXPECT_EQ(table.counts(0).rows, 0);
}

TEST(RowTable, RefusesDuplicateRow) {
  RowTable table({feature("user", 1)});
  const float one = 1;
  const RowRecord row = {.id = 6, .payload = std::as_bytes(std::span(&one, 1))};
  table.insert_row(row);
  EXPECT_NE(refusal([&] { table.insert_row(row); }).find("there already"), std::string::npos);
}

TEST(RowTable, RefusesFeaturesThatNoTableCanHold) {
  const auto refused = [](FeatureSpec spec, RowTableOptions options = {}) {
    return refusal([&] { RowTable({spec}, options); });
  };
  EXPECT_NE(refused(feature("", 1)).find("needs a name"), std::string::npos);
  EXPECT_NE(refused(feature("user", 0)).find("1 to 4096"), std::string::npos);
  EXPECT_NE(refused(feature("user", 4097)).find("1 to 4096"), std::string::npos);
  FeatureSpec spec = feature("user", 1);
  spec.admission = {.filter = RowAdmission::Filter::kBloom, .threshold = 256};
  EXPECT_NE(refused(spec).find("counts up to this"), std::string::npos);
  spec = feature("user", 1);
  spec.eviction.steps_to_live = -1;
  EXPECT_NE(refused(spec).find("steps_to_live"), std::string::npos);
  EXPECT_NE(refused(feature("user", 1), {.memory_bytes = 1919}).find("1920 bytes or more"),
            std::string::npos);
  EXPECT_EQ(refused(feature("user", 1), {.memory_bytes = 1920}), "nothing");
  EXPECT_NE(refusal([] { RowTable({feature("a", 1), feature("a", 2)}); }).find("two features"),
            std::string::npos);
}

TEST(RowTable, RefusesBookkeepingOfOtherFeatures) {
  RowTable one({feature("a", 1)}), two({feature("a", 1), feature("b", 1)});
  const auto restored = [&](std::string_view text) {
    return refusal([&] { two.restore_bookkeeping(text, RowTable::Bookkeeping::kWhole); });
  };
  EXPECT_NE(restored(one.bookkeeping()).find("not of a table"), std::string::npos);
  const std::string whole = two.bookkeeping();
  EXPECT_NE(restored(std::string_view(whole).substr(0, whole.size() - 1)).find("not of a table"),
            std::string::npos);
  EXPECT_NE(restored(whole + "x").find("not of a table"), std::string::npos);
  EXPECT_EQ(restored(whole), "nothing");
}

TEST(RowTable, RequiresAscendingStepsAndIds) {
  RowTable table({feature("a", 1)});
  update(table, 5, 0, {1});
  EXPECT_THROW(update(table, 5, 0, {1}), InternalError);
  EXPECT_THROW(update(table, 6, 0, {2, 1}), InternalError);
  EXPECT_THROW(update(table, 6, 0, {2, 2}), InternalError);
  EXPECT_THROW(table.update(6, 1, Ids{2}, std::vector<float>(1), 1.0), InternalError);
  EXPECT_THROW(table.update(6, 0, Ids{2}, std::vector<float>(2), 1.0), InternalError);
  update(table, 6, 0, {1, 2});
}

}  // namespace
}  // namespace strata
