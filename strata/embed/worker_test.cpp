// Runs the worker with servers that keep every version: compares the rows of each step, and the
// updates from its gradients, with an explicit loop.
#include "strata/embed/worker.h"

#include <gtest/gtest.h>

#include <map>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr int kWidth = 3;
constexpr float kRate = 0.5f;

using Table = std::map<std::uint64_t, std::vector<float>>;

std::vector<float> first_row(int table, std::uint64_t id) {
  std::vector<float> row;
  for (int i = 0; i < kWidth; ++i)
    row.push_back(static_cast<float>(mix_key(mix_key(table, id), i) % 1000) / 100);
  return row;
}

std::vector<float>& row_of(Table& table, int number, std::uint64_t id) {
  return table.try_emplace(id, first_row(number, id)).first->second;
}

// SGD on rows; keeps every version.
class RememberingServers final : public RowServers {
 public:
  explicit RememberingServers(int tables, std::int64_t version = 0)
      : version_(version), now_(tables) {
    versions_[version_] = now_;
  }

  std::unique_ptr<PendingRows> read(std::vector<FeatureRead> features) override {
    struct Ready final : PendingRows {
      std::vector<FeatureRows> rows;
      std::vector<FeatureRows> wait() override { return std::move(rows); }
    };
    auto ready = std::make_unique<Ready>();
    for (FeatureRead& read : features) {
      EXPECT_EQ(read.version, version_) << "neither too early nor after the next update";
      FeatureRows rows{.feature = read.feature, .version = read.version, .ids = read.ids};
      for (const std::uint64_t id : read.ids)
        for (const float value : row_of(versions_.at(read.version)[read.feature], read.feature, id))
          rows.values.push_back(value);
      ready->rows.push_back(std::move(rows));
    }
    if (fails_at_read_ == version_) throw SystemError({.what = "the server is gone"});
    return ready;
  }

  void update(std::int64_t version, std::vector<FeatureRows> gradients, double factor) override {
    EXPECT_EQ(version, version_ + 1);
    for (const FeatureRows& rows : gradients) {
      for (std::size_t i = 0; i < rows.ids.size(); ++i)
        for (int j = 0; j < kWidth; ++j)
          row_of(now_[rows.feature], rows.feature, rows.ids[i])[j] -=
              static_cast<float>(factor) * kRate * rows.values[i * kWidth + j];
    }
    versions_[++version_] = now_;
  }

  void await(std::int64_t) override {}
  void save(std::int64_t) override {}

  std::int64_t version_;
  std::vector<Table> now_;
  std::map<std::int64_t, std::vector<Table>> versions_;
  std::int64_t fails_at_read_ = -1;
};

// Two features on table 0, one on table 1; ids repeat from step to step.
SampleBatch ids_of(std::int64_t step) {
  SampleBatch batch{.samples = 2};
  for (int feature = 0; feature < 3; ++feature) {
    IdLists lists;
    for (int sample = 0; sample < 2; ++sample) {
      for (int k = 0; k <= sample + feature % 2; ++k)
        lists.ids.push_back(mix_key(mix_key(step, sample), k * 7 + feature) % 4);
      lists.offsets.push_back(static_cast<std::int64_t>(lists.ids.size()));
    }
    batch.categorical.push_back(std::move(lists));
  }
  return batch;
}

WorkerOptions options_of(std::vector<int> staleness) {
  return {.tables = {{.name = "item", .width = kWidth}, {.name = "user", .width = kWidth}},
          .staleness = std::move(staleness),
          .features = {{.table = 0}, {.table = 1}, {.table = 0}}};
}

// The gradient of a pooled value is the value plus the step, so order and versions matter.
std::vector<float> gradients_of(const std::vector<float>& pooled, std::int64_t step) {
  std::vector<float> gradients = pooled;
  for (float& g : gradients) g = 0.01f * g + 0.1f * static_cast<float>(step % 3);
  return gradients;
}

std::vector<float> sum_rows(std::vector<Table>& tables, const SampleBatch& batch) {
  std::vector<float> pooled;
  for (int sample = 0; sample < 2; ++sample) {
    for (int feature = 0; feature < 3; ++feature) {
      const int table = feature == 1 ? 1 : 0;
      std::vector<float> sum(kWidth, 0.0f);
      const IdLists& lists = batch.categorical[feature];
      for (std::int64_t o = lists.offsets[sample]; o < lists.offsets[sample + 1]; ++o)
        for (int j = 0; j < kWidth; ++j) sum[j] += row_of(tables[table], table, lists.ids[o])[j];
      pooled.insert(pooled.end(), sum.begin(), sum.end());
    }
  }
  return pooled;
}

TEST(EmbeddingWorker, ReadsVersionOfEachStepsStaleness) {
  for (const std::int64_t begin : {0, 5}) {
    for (const std::vector<int>& staleness : {std::vector{1, 1}, {3, 1}, {2, 4}}) {
      RememberingServers servers(2, begin);
      WorkerOptions options = options_of(staleness);
      options.threads = begin == 0 ? 1 : 3;
      EmbeddingWorker worker(options, servers, ids_of);
      ASSERT_EQ(worker.width(), 3 * kWidth);
      worker.begin(begin);
      std::vector<float> pooled(2 * worker.width());
      constexpr std::int64_t kSteps = 9;
      for (std::int64_t step = begin; step < begin + kSteps; ++step) {
        worker.prefetch(step);
        worker.fetch(step, pooled);
        worker.await(step);  // another thread creates versions
        std::vector<Table> rows(2);
        for (int table = 0; table < 2; ++table)
          rows[table] = servers.versions_.at(std::max(begin, step - staleness[table] + 1))[table];
        EXPECT_EQ(pooled, sum_rows(rows, ids_of(step))) << step;
        worker.send_gradients(step, gradients_of(pooled, step));
      }
      worker.read(begin + kSteps, ids_of(0), pooled);
      EXPECT_EQ(pooled, sum_rows(servers.now_, ids_of(0)));
      const std::vector<std::vector<std::int64_t>> all = worker.take_staleness_counts();
      for (int table = 0; table < 2; ++table) {
        const std::vector<std::int64_t>& counts = all[table];
        EXPECT_EQ(counts.size(), static_cast<std::size_t>(staleness[table])) << "the bound is met";
        EXPECT_GT(counts.back(), 0);
      }
    }
  }
}

// Without staleness, a rank waits for rows, and only then are samples of the next step read.
TEST(EmbeddingWorker, ReadsSamplesOneStepAhead) {
  for (const int staleness : {1, 3}) {
    std::vector<std::int64_t> read;
    RememberingServers servers(2);
    EmbeddingWorker worker(options_of({staleness, 1}), servers, [&](std::int64_t step) {
      read.push_back(step);
      return ids_of(step);
    });
    worker.begin(0);
    worker.prefetch(0);
    worker.await(0);
    EXPECT_EQ(read.size(), static_cast<std::size_t>(staleness == 1 ? 1 : staleness + 1));
    std::vector<float> pooled(2 * worker.width());
    worker.fetch(0, pooled);
    worker.await(0);
    EXPECT_EQ(read.size(), static_cast<std::size_t>(staleness + 1));
    worker.samples(staleness + 2);  // earlier than the worker would read them
    EXPECT_EQ(read.size(), static_cast<std::size_t>(staleness + 3));
    for (std::size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], static_cast<std::int64_t>(i));
  }
}

// A maximum's gradient belongs to the row that had it, which another feature of the table may pool,
// too.
TEST(EmbeddingWorker, SendsGradientOfMaximumToItsRow) {
  RememberingServers servers(2);
  WorkerOptions options = options_of({1, 1});
  options.features[0].pooling = Pooling::kMax;
  EmbeddingWorker worker(options, servers, ids_of);
  worker.begin(0);
  worker.prefetch(0);
  std::vector<float> pooled(2 * worker.width());
  worker.fetch(0, pooled);
  const SampleBatch batch = ids_of(0);
  std::vector<Table> expected = servers.now_;
  std::vector<Table> before = servers.now_;
  std::vector<float> gradients(pooled.size());
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = 0.1f * static_cast<float>(i + 1);
  for (int sample = 0; sample < 2; ++sample)
    for (int feature = 0; feature < 3; ++feature)
      for (int j = 0; j < kWidth; ++j) {
        const int table = feature == 1 ? 1 : 0;
        const IdLists& lists = batch.categorical[feature];
        const float gradient = gradients[(sample * 3 + feature) * kWidth + j];
        std::int64_t largest = lists.offsets[sample];
        for (std::int64_t o = lists.offsets[sample]; o < lists.offsets[sample + 1]; ++o) {
          if (row_of(before[table], table, lists.ids[o])[j] >
              row_of(before[table], table, lists.ids[largest])[j])
            largest = o;
          if (feature > 0) row_of(expected[table], table, lists.ids[o])[j] -= kRate * gradient;
        }
        if (feature == 0) row_of(expected[0], 0, lists.ids[largest])[j] -= kRate * gradient;
      }
  worker.send_gradients(0, gradients);
  worker.await(1);
  for (int table = 0; table < 2; ++table)
    for (const auto& [id, row] : expected[table])
      for (int j = 0; j < kWidth; ++j)
        EXPECT_NEAR(row_of(servers.now_[table], table, id)[j], row[j], 1e-5) << table << ' ' << id;
}

TEST(EmbeddingWorker, SendsGradientOfEachRow) {
  RememberingServers servers(2);
  std::vector<Table> sequential(2);
  EmbeddingWorker worker(options_of({1, 1}), servers, ids_of);
  worker.begin(0);
  std::vector<float> pooled(2 * worker.width());
  for (std::int64_t step = 0; step < 6; ++step) {
    worker.prefetch(step);
    worker.fetch(step, pooled);
    worker.send_gradients(step, gradients_of(pooled, step), 0.5);
    const SampleBatch batch = ids_of(step);
    const std::vector<float> gradients = gradients_of(sum_rows(sequential, batch), step);
    // Sums the gradients of each row over its occurrences, feature by feature, into one update.
    for (int table = 0; table < 2; ++table) {
      Table sums;
      for (int feature = 0; feature < 3; ++feature) {
        if ((feature == 1) != (table == 1)) continue;
        const IdLists& lists = batch.categorical[feature];
        for (int sample = 0; sample < 2; ++sample)
          for (std::int64_t o = lists.offsets[sample]; o < lists.offsets[sample + 1]; ++o) {
            std::vector<float>& sum =
                sums.try_emplace(lists.ids[o], std::vector<float>(kWidth)).first->second;
            for (int j = 0; j < kWidth; ++j)
              sum[j] += gradients[(sample * 3 + feature) * kWidth + j];
          }
      }
      for (const auto& [id, sum] : sums)
        for (int j = 0; j < kWidth; ++j)
          row_of(sequential[table], table, id)[j] -= 0.5f * kRate * sum[j];
    }
  }
  worker.read(6, ids_of(0), pooled);
  for (int table = 0; table < 2; ++table)
    for (const auto& [id, row] : sequential[table]) EXPECT_EQ(servers.now_[table].at(id), row);
}

// Runs steps `from` to `to`; returns the pooled values of each.
std::vector<std::vector<float>> steps_of(EmbeddingWorker& worker, std::int64_t from,
                                         std::int64_t to) {
  std::vector<std::vector<float>> all;
  for (std::int64_t step = from; step < to; ++step) {
    std::vector<float>& pooled = all.emplace_back(2 * worker.width());
    worker.prefetch(step);
    worker.fetch(step, pooled);
    worker.send_gradients(step, gradients_of(pooled, step));
  }
  return all;
}

TEST(EmbeddingWorker, ResumesWithRowsThatStepsHadRead) {
  constexpr std::int64_t kMiddle = 5, kEnd = 12;
  for (const std::vector<int>& staleness : {std::vector{1, 1}, {3, 1}, {2, 5}}) {
    RememberingServers whole(2);
    EmbeddingWorker worker(options_of(staleness), whole, ids_of);
    worker.begin(0);
    std::vector<std::vector<float>> expected = steps_of(worker, 0, kMiddle);
    const std::vector<StepRows> ahead = worker.rows_ahead(kMiddle);
    EXPECT_EQ(static_cast<int>(ahead.size()), staleness[0] + staleness[1] - 2);
    expected = steps_of(worker, kMiddle, kEnd);  // from the same versions as before
    worker.await(kEnd);

    const auto resume = [&](const std::vector<int>& with, const std::vector<StepRows>& known) {
      RememberingServers servers(2, kMiddle);
      servers.now_ = whole.versions_.at(kMiddle);
      servers.versions_[kMiddle] = servers.now_;
      EmbeddingWorker second(options_of(with), servers, ids_of);
      second.begin(kMiddle, known);
      std::vector<std::vector<float>> all = steps_of(second, kMiddle, kEnd);
      second.take_staleness_counts();
      return all;
    };
    EXPECT_EQ(resume(staleness, ahead), expected);
    // With another number of ranks the rows of a step are in several pieces.
    std::vector<StepRows> pieces;
    for (const StepRows& rows : ahead)
      for (std::size_t i = 0; i < rows.rows.ids.size(); ++i) {
        StepRows& piece = pieces.emplace_back(rows);
        piece.rows.ids = {rows.rows.ids[i]};
        piece.rows.values.assign(rows.rows.values.begin() + i * kWidth,
                                 rows.rows.values.begin() + (i + 1) * kWidth);
      }
    EXPECT_EQ(resume(staleness, pieces), expected);
    // Rows that are staler than allowed, or incomplete, are read again.
    EXPECT_EQ(resume({1, 1}, ahead), resume({1, 1}, {}));
    if (staleness[1] == 5) {
      EXPECT_EQ(resume({1, 3}, ahead), resume({1, 3}, {}));
    }
    if (pieces.empty()) continue;
    pieces.pop_back();
    EXPECT_NE(resume(staleness, pieces), expected);
    EXPECT_NE(resume(staleness, {}), expected);
  }
}

TEST(EmbeddingWorker, FailuresReachCallersThatWaitForRows) {
  RememberingServers servers(2);
  servers.fails_at_read_ = 1;
  EmbeddingWorker worker(options_of({1, 1}), servers, ids_of);
  worker.begin(0);
  std::vector<float> pooled(2 * worker.width());
  worker.prefetch(0);
  worker.fetch(0, pooled);
  worker.send_gradients(0, pooled);
  EXPECT_THROW(
      {
        worker.prefetch(1);
        worker.fetch(1, pooled);
      },
      SystemError);
}

TEST(EmbeddingWorker, FailuresOfDataReachCallers) {
  RememberingServers servers(2);
  EmbeddingWorker worker(options_of({2, 2}), servers, [](std::int64_t step) {
    if (step == 2) throw UserError({.what = "line 3 is broken"});
    return ids_of(step);
  });
  worker.begin(0);
  std::vector<float> pooled(2 * worker.width());
  EXPECT_THROW(
      for (std::int64_t step = 0; step < 3; ++step) {
        worker.prefetch(step);
        worker.fetch(step, pooled);
        worker.send_gradients(step, pooled);
      },
      UserError);
}

}  // namespace
}  // namespace strata
