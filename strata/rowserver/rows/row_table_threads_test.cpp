// Rows start at zero and every element gets the same gradient of -1: all elements of a consistent
// row equal the number of its updates, and a later read never returns fewer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "strata/base/helper_threads.h"
#include "strata/base/scratch_folder.h"
#include "strata/rowserver/rows/row_table.h"

namespace strata {
namespace {

using Ids = std::vector<std::uint64_t>;

#ifdef STRATA_SANITIZED
constexpr std::int64_t kSteps = 400;
#else
constexpr std::int64_t kSteps = 3000;
#endif
constexpr int kReaders = 2;
constexpr std::uint64_t kIds = 4000;

FeatureSpec counted(int width, RowPrecision precision) {
  FeatureSpec spec;
  spec.name = "counted";
  spec.width = width;
  spec.init.kind = RowInit::Kind::kZeros;
  spec.optimizer.kind = RowOptimizerKind::kMomentum;  // with a state that has to move with its row
  spec.optimizer.momentum = 0;
  spec.optimizer.learning_rate = 1;
  spec.precision = precision;
  return spec;
}

Ids some_ids(std::mt19937& random, std::size_t n, std::uint64_t below) {
  Ids ids(n);
  for (std::uint64_t& id : ids) id = random() % below;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

enum class Order : std::uint8_t { kNeverFewer, kAny };

// Reads in parallel with updates; returns a description of the first error.
std::string read_all_along(const RowTable& table, unsigned seed, Order order,
                           const std::atomic<bool>& ended) {
  const auto width = static_cast<std::size_t>(table.features()[0].width);
  std::mt19937 random(seed);
  std::vector<float> seen(kIds);
  while (!ended) {
    const Ids ids = some_ids(random, 50, kIds);
    std::vector<float> rows(ids.size() * width, -1);
    table.read(0, ids, rows);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float value = rows[i * width];
      for (std::size_t k = 0; k < width; ++k)
        if (rows[i * width + k] != value) return "a row of two updates";
      if (value < 0 || value > static_cast<float>(kSteps)) return "a value that never was";
      if (order == Order::kNeverFewer && value < seen[ids[i]]) return "an older row";
      seen[ids[i]] = value;
    }
  }
  return "";
}

void expect_whole_rows(RowTable& table, Order order, std::int64_t steps = kSteps) {
  std::atomic<bool> ended = false;
  std::string wrong[kReaders];
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < kReaders; ++i)
    readers.emplace_back([&, i] { wrong[i] = read_all_along(table, i, order, ended); });
  std::mt19937 random(99);
  const auto width = static_cast<std::size_t>(table.features()[0].width);
  std::vector<float> counts(kIds);
  for (std::int64_t step = 0; step < steps; ++step) {
    // The set of known ids grows, and the index with it.
    const Ids ids =
        some_ids(random, 60,
                 10 + kIds * static_cast<std::uint64_t>(step) / static_cast<std::uint64_t>(steps));
    table.update(step, 0, ids, std::vector<float>(ids.size() * width, -1.0f), 1.0);
    table.end_step(step);
    for (const std::uint64_t id : ids) ++counts[id];
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  for (const std::string& what : wrong) EXPECT_EQ(what, "");
  if (order == Order::kAny) return;
  for (std::uint64_t id = 0; id < kIds; ++id) {
    std::vector<float> row(width);
    table.read(0, Ids{id}, row);
    ASSERT_EQ(row[0], counts[id]) << id;
  }
}

TEST(RowTableThreads, ReadWholeRowsWhileTableGrows) {
  for (const int width : {1, 2, 19}) {
    RowTable table({counted(width, RowPrecision::kFp32)});
    expect_whole_rows(table, Order::kNeverFewer);
  }
}

TEST(RowTableThreads, ReadWholeRowsOf16Bits) {
  RowTable table({counted(7, RowPrecision::kFp16)});
  expect_whole_rows(table, Order::kNeverFewer);
}

TEST(RowTableThreads, ReadWholeRowsWhileOthersAreEvicted) {
  FeatureSpec spec = counted(5, RowPrecision::kFp32);
  spec.eviction.steps_to_live = 40;
  RowTable table({spec}, {.memory_bytes = 700 * 66});
  expect_whole_rows(table, Order::kAny);
  EXPECT_GT(table.counts(0).evicted, 0);
  EXPECT_GT(table.counts(0).expired, 0);
}

TEST(RowTableThreads, FindRowsWhileOthersMoveToDiskAndBack) {
  const ScratchFolder folder;
  RowTable table({counted(5, RowPrecision::kFp32)},
                 {.memory_bytes = 700 * 66, .cold = folder.path("cold")});
  expect_whole_rows(table, Order::kNeverFewer, kSteps / 5);
  EXPECT_GT(table.counts(0).returned, 100);
  EXPECT_GT(table.counts(0).read_cold, 0);
}

TEST(RowTableThreads, ReadRowsOrZerosDuringAdmission) {
  for (const auto filter : {RowAdmission::Filter::kExact, RowAdmission::Filter::kBloom}) {
    FeatureSpec spec = counted(3, RowPrecision::kFp32);
    spec.admission = {.filter = filter, .threshold = 4};
    RowTable table({spec}, {.memory_bytes = 700 * 58});
    expect_whole_rows(table, Order::kAny);
    EXPECT_GT(table.counts(0).admitted, 0);
    EXPECT_GT(table.counts(0).refused, 0);
  }
}

// Updates of different features in parallel leave the bytes that updates one by one leave, while
// indexes grow, candidates become rows, and readers of all features see whole rows.
TEST(RowTableThreads, IndependentFeaturesAreUpdatedInParallel) {
  constexpr int kFeatures = 6, kRounds = 40;
  std::vector<FeatureSpec> features;
  for (int i = 0; i < kFeatures; ++i) {
    features.push_back(counted(4 + i, i % 2 ? RowPrecision::kFp16 : RowPrecision::kFp32));
    features.back().name += std::to_string(i);
  }
  features[4].admission = {.filter = RowAdmission::Filter::kExact, .threshold = 2};
  features[5].admission = {.filter = RowAdmission::Filter::kBloom, .threshold = 2};
  RowTable sequential(features), parallel(features, {.memory_bytes = 2 << 20});
  HelperThreads threads(4);
  std::atomic<bool> ended = false;
  std::vector<std::thread> readers;
  std::vector<std::string> errors(kFeatures);
  for (int feature = 0; feature < kFeatures; ++feature)
    readers.emplace_back([&, feature] {
      std::mt19937 random(feature);
      const auto width = static_cast<std::size_t>(features[feature].width);
      while (!ended) {
        const Ids ids = some_ids(random, 50, 20000);
        std::vector<float> rows(ids.size() * width, -1);
        parallel.read(feature, ids, rows);
        for (std::size_t i = 0; i < rows.size(); ++i)
          if (rows[i] != rows[i / width * width]) errors[feature] = "a row of two versions";
      }
    });
  std::mt19937 random(5);
  int parallel_steps = 0;
  for (std::int64_t step = 0; step < kRounds; ++step) {
    std::vector<Ids> ids;
    std::vector<std::vector<float>> gradients;
    std::vector<std::size_t> counts;
    for (const FeatureSpec& feature : features) {
      ids.push_back(some_ids(random, 700, 1 + 500 * (step + 1)));
      counts.push_back(ids.back().size());
      gradients.emplace_back(ids.back().size() * feature.width, -1.0f);
    }
    const auto update = [&](RowTable& table, std::size_t i) {
      table.update(step, static_cast<int>(i), ids[i], gradients[i], 1.0);
    };
    for (std::size_t i = 0; i < features.size(); ++i) update(sequential, i);
    if (!parallel.features_are_independent(counts)) break;  // memory is nearly full
    ++parallel_steps;
    threads.run(features.size(), [&](std::size_t i) { update(parallel, i); });
    sequential.end_step(step);
    parallel.end_step(step);
    ASSERT_EQ(sequential.digest(), parallel.digest()) << step;
    ASSERT_EQ(sequential.used_bytes(), parallel.used_bytes());
    ASSERT_EQ(parallel.counts(0).evicted, 0);
  }
  ended = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(errors, std::vector<std::string>(kFeatures));
  EXPECT_GT(parallel_steps, 5);
  EXPECT_LT(parallel_steps, kRounds);
  EXPECT_GT(parallel.used_bytes(), 3 << 19);
}

}  // namespace
}  // namespace strata
