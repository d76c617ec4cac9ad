#include "strata/kserve/model/sample_queue.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using std::chrono::microseconds;
using Ids = std::vector<std::uint64_t>;

constexpr SampleQueue::Clock::time_point kStart{};

TEST(SampleQueue, WaitsForOthersUntilTheDelayOfTheFirstRequest) {
  SampleQueue queue({.samples = 10, .delay = microseconds(2000)});
  EXPECT_FALSE(queue.due());
  EXPECT_TRUE(queue.add(1, 3, kStart + microseconds(100)));
  EXPECT_TRUE(queue.add(2, 4, kStart + microseconds(1900)));
  EXPECT_EQ(queue.due(), kStart + microseconds(2100));
  EXPECT_EQ(queue.take(), (Ids{1, 2}));
  EXPECT_FALSE(queue.due());
}

TEST(SampleQueue, IsDueAtOnceWhenAPassIsFull) {
  SampleQueue queue({.samples = 10, .delay = microseconds(2000)});
  queue.add(1, 6, kStart);
  queue.add(2, 3, kStart + microseconds(1));
  EXPECT_EQ(queue.due(), kStart + microseconds(2000)) << "one more sample fits";
  queue.add(3, 1, kStart + microseconds(2));
  EXPECT_EQ(queue.due(), kStart);
  EXPECT_EQ(queue.take(), (Ids{1, 2, 3}));
}

TEST(SampleQueue, KeepsTheOrderOfRequestsThatDoNotFit) {
  SampleQueue queue({.samples = 10, .delay = microseconds(2000)});
  queue.add(1, 6, kStart);
  queue.add(2, 8, kStart + microseconds(5));
  queue.add(3, 1, kStart + microseconds(6));
  EXPECT_EQ(queue.due(), kStart);
  EXPECT_EQ(queue.take(), (Ids{1})) << "request 3 does not overtake request 2";
  EXPECT_EQ(queue.due(), kStart + microseconds(2005)) << "they leave room for one sample";
  EXPECT_EQ(queue.take(), (Ids{2, 3}));
}

TEST(SampleQueue, ForgetsARequestThatIsRemoved) {
  SampleQueue queue({.samples = 10, .delay = microseconds(2000)});
  queue.add(1, 6, kStart);
  queue.add(2, 4, kStart + microseconds(7));
  EXPECT_TRUE(queue.remove(1));
  EXPECT_FALSE(queue.remove(1));
  EXPECT_EQ(queue.due(), kStart + microseconds(2007)) << "the pass has room again";
  EXPECT_EQ(queue.take(), (Ids{2}));
  EXPECT_FALSE(queue.remove(2));
}

TEST(SampleQueue, RefusesMoreRequestsThanMayWait) {
  SampleQueue queue({.samples = 10, .requests = 2});
  EXPECT_TRUE(queue.add(1, 1, kStart));
  EXPECT_TRUE(queue.add(2, 1, kStart));
  EXPECT_FALSE(queue.add(3, 1, kStart));
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_EQ(queue.take(), (Ids{1, 2}));
  EXPECT_TRUE(queue.add(3, 1, kStart));
}

TEST(SampleQueue, IsDueAtOnceWithoutADelay) {
  SampleQueue queue({.samples = 10, .delay = microseconds(0)});
  queue.add(1, 1, kStart + microseconds(3));
  EXPECT_EQ(queue.due(), kStart + microseconds(3));
}

}  // namespace
}  // namespace strata
