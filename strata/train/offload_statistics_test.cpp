#include "strata/train/offload_statistics.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "strata/comm/ranks.h"

namespace strata {
namespace {

// The totals of a rank after `steps` steps; ranks differ.
Trainer::OffloadUse use_of(int rank, int steps) {
  Trainer::OffloadUse use;
  use.host_peak_bytes = 100 * (rank + 1);
  use.bytes_to_device = 10 * (rank + 1) * steps;
  use.bytes_to_host = 1000 * (rank + 1) * steps;
  use.weights_wait_seconds = 0.5 * rank * steps;
  use.gradients_wait_seconds = 0.25 * (2 - rank) * steps;
  use.activations_wait_seconds = 2.0 * steps;
  use.disk.bytes_read = 7 * steps;
  use.disk.bytes_written = 3 * (rank + 1) * steps;
  use.disk.read_seconds = 4.0 * rank * steps;
  use.disk.write_seconds = 8.0 * steps;
  return use;
}

TEST(OffloadStatistics, SumBytesAndTakeLongestWait) {
  std::vector<OffloadRecord> records;
  std::mutex mutex;
  run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
    OffloadStatistics statistics;
    for (int step = 1; step <= 3; ++step) {
      StepSums sums(group);
      statistics.add(sums, use_of(group.rank(), step));
      sums.share();
      const OffloadRecord record = statistics.record(/*on_disk=*/step < 3);
      const std::lock_guard lock(mutex);
      records.push_back(record);
      EXPECT_EQ(record.disk.has_value(), step < 3);
    }
  });
  ASSERT_EQ(records.size(), 6);
  for (const OffloadRecord& record : records) {
    EXPECT_EQ(record.host_peak_bytes, (std::vector<std::int64_t>{100, 200}));
    EXPECT_EQ(record.bytes_to_device, 30);
    EXPECT_EQ(record.bytes_to_host, 3000);
    EXPECT_EQ(record.weights_wait_seconds, 0.5);
    EXPECT_EQ(record.gradients_wait_seconds, 0.5);
    EXPECT_EQ(record.activations_wait_seconds, 2);
    if (!record.disk) continue;
    EXPECT_EQ(record.disk->bytes_read, 14);
    EXPECT_EQ(record.disk->bytes_written, 9);
    EXPECT_EQ(record.disk->read_seconds, 4);
    EXPECT_EQ(record.disk->write_seconds, 8);
  }
}

}  // namespace
}  // namespace strata
