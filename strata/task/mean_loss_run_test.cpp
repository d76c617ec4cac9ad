#include "strata/task/mean_loss_run.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/device/device.h"
#include "strata/device/thread_pool.h"

namespace strata {
namespace {

constexpr std::int64_t kSamples = 4;
constexpr int kSteps = 10, kRanks = 3;

// Counts what is read.
class CountedData : public TaskData {
 public:
  CountedData(bool is_read_ahead, bool validation_changes)
      : is_read_ahead_(is_read_ahead), validation_changes_(validation_changes) {}

  MiniBatch at(std::int64_t samples_seen) const override {
    ++reads;
    threads = thread_pool().threads();
    return {.inputs = {at::full({kSamples}, samples_seen, host_options(at::kLong))},
            .samples = kSamples,
            .valid_tokens = kSamples};
  }
  std::int64_t seen_after(std::int64_t samples_seen) const override {
    return samples_seen + kSamples;
  }
  bool is_read_ahead() const override { return is_read_ahead_; }
  std::int64_t steps() const override { return kSteps; }
  std::string unit() const override { return "sample"; }
  bool evaluates() const override { return true; }
  std::vector<MiniBatch> validation() const override {
    ++validations;
    return {at(0), at(kSamples)};
  }
  bool validation_changes() const override { return validation_changes_; }

  mutable std::atomic<int> reads = 0, validations = 0, threads = 0;  // threads of the last reader

 private:
  bool is_read_ahead_, validation_changes_;
};

int reads_of_training(bool is_read_ahead) {
  const CountedData data(is_read_ahead, false);
  {
    MeanLossRun run(data);
    run_thread_ranks({.ranks = kRanks}, [&](Group& group, MemoryAccount&) {
      const std::unique_ptr<TaskRank> rank = run.rank(group);
      for (int step = 0; step < kSteps; ++step) {
        group.barrier();  // as the loop of a run does
        const std::int64_t seen = step * kSamples;
        const MiniBatch batch = rank->mini_batch(step, seen);
        EXPECT_EQ(batch.inputs[0].select(0, 0).item().toLong(), seen);
      }
    });
  }
  return data.reads;
}

TEST(MeanLossRun, RanksShareMiniBatchesThatAreReadAhead) {
  EXPECT_EQ(reads_of_training(true), kSteps);
}

TEST(MeanLossRun, ReadsAheadWithAsManyThreadsAsRankHas) {
  const CountedData data(true, false);
  MeanLossRun run(data);
  run_thread_ranks({.ranks = 1, .threads_per_rank = 3},
                   [&](Group& group, MemoryAccount&) { run.rank(group)->mini_batch(0, 0); });
  EXPECT_EQ(data.threads, 3);
}

TEST(MeanLossRun, EveryRankReadsMiniBatchesThatAreQuicklyRead) {
  EXPECT_EQ(reads_of_training(false), kRanks * kSteps);
}

TEST(MeanLossRun, ValidationIsReadOnceUnlessItChanges) {
  for (const bool changes : {false, true}) {
    const CountedData data(true, changes);
    MeanLossRun run(data);
    run_thread_ranks({.ranks = kRanks}, [&](Group&, MemoryAccount& account) {
      const std::int64_t before = account.current_bytes();
      const std::vector<MiniBatch> first = run.validation(), second = run.validation();
      ASSERT_EQ(second.size(), 2u);
      EXPECT_EQ(second[1].samples, kSamples);
      EXPECT_EQ(account.current_bytes(), before);  // the host keeps them
    });
    EXPECT_EQ(data.validations, changes ? 2 * kRanks : 1);
  }
}

class DamagedData final : public CountedData {
 public:
  DamagedData() : CountedData(true, false) {}
  std::vector<MiniBatch> validation() const override {
    ++validations;
    throw UserError({.operation = "images.file", .what = "a damaged image"});
  }
};

TEST(MeanLossRun, EveryRankGetsErrorOfValidation) {
  const DamagedData data;
  MeanLossRun run(data);
  run_thread_ranks({.ranks = kRanks},
                   [&](Group&, MemoryAccount&) { EXPECT_THROW(run.validation(), UserError); });
  EXPECT_EQ(data.validations, 1);
}

}  // namespace
}  // namespace strata
