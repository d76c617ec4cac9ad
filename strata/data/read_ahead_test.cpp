#include "strata/data/read_ahead.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/device/thread_pool.h"

namespace strata {
namespace {

constexpr std::int64_t kSamples = 4;

// Every sample of the mini-batch is its position.
MiniBatch batch_at(std::int64_t samples_seen) {
  return {.inputs = {at::full({kSamples}, samples_seen, host_options(at::kLong))},
          .samples = kSamples,
          .valid_tokens = kSamples};
}

std::int64_t after(std::int64_t samples_seen) { return samples_seen + kSamples; }

std::int64_t value(const MiniBatch& batch) { return batch.inputs[0].select(0, 0).item().toLong(); }

MiniBatchSource counting(std::atomic<int>& reads) {
  return {[&](std::int64_t seen) {
            ++reads;
            return batch_at(seen);
          },
          after};
}

TEST(ReadAhead, ReadsNextMiniBatchBeforeAnyRankAsks) {
  std::promise<void> next_is_read;
  ReadAhead data({[&](std::int64_t seen) {
                    if (seen == kSamples) next_is_read.set_value();
                    return batch_at(seen);
                  },
                  after},
                 1);
  EXPECT_EQ(value(data.at(0)), 0);
  ASSERT_EQ(next_is_read.get_future().wait_for(std::chrono::seconds(20)),
            std::future_status::ready);
  EXPECT_EQ(value(data.at(kSamples)), kSamples);
}

TEST(ReadAhead, ReadsEachMiniBatchOnceForAllRanks) {
  std::atomic<int> reads = 0;
  {
    ReadAhead data(counting(reads), 1);
    for (std::int64_t step = 0; step < 50; ++step)
      for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(value(data.at(step * kSamples, step == 49)), step * kSamples);
  }
  EXPECT_EQ(reads, 50);
}

TEST(ReadAhead, RanksWithoutBarrierGetTheirMiniBatches) {
  ReadAhead data({batch_at, after}, 1);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&] {
      for (std::int64_t step = 0; step < 50; ++step)
        wrong += value(data.at(step * kSamples)) != step * kSamples;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ReadAhead, BeginsAnywhere) {
  ReadAhead data({batch_at, after}, 1);
  EXPECT_EQ(value(data.at(1000)), 1000);
  EXPECT_EQ(value(data.at(5000)), 5000);  // not the one that was read ahead
}

TEST(ReadAhead, EveryRankGetsErrorOfItsMiniBatchAlone) {
  ReadAhead data({[](std::int64_t seen) {
                    if (seen == kSamples)
                      throw UserError({.operation = "images.file", .what = "a damaged image"});
                    return batch_at(seen);
                  },
                  after},
                 1);
  EXPECT_EQ(value(data.at(0)), 0);  // the next one fails, but no rank has asked for it
  for (int rank = 0; rank < 2; ++rank) EXPECT_THROW(data.at(kSamples), UserError);
  EXPECT_EQ(value(data.at(2 * kSamples)), 2 * kSamples);
}

TEST(ReadAhead, EndsWhileMiniBatchesAreRead) {
  std::atomic<int> reads = 0;
  {
    ReadAhead data(counting(reads), 1);
    data.at(0);
  }
  EXPECT_EQ(reads, 2);
}

TEST(ReadAhead, SharesSamplesAmongItsThreadsAndChargesNoRank) {
  install_accounting_allocator();
  std::atomic<int> threads = 0;
  ReadAhead data({[&](std::int64_t seen) {
                    threads = thread_pool().threads();
                    return batch_at(seen);
                  },
                  after},
                 3);
  MemoryAccount account("rank 0");
  const AccountScope scope(account);
  const std::int64_t before = account.current_bytes();
  const MiniBatch batch = data.at(0);
  EXPECT_EQ(value(batch), 0);
  EXPECT_EQ(threads, 3);
  EXPECT_EQ(account.current_bytes(), before);
}

}  // namespace
}  // namespace strata
