#include "strata/base/track_trace.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(TrackTrace, DropsOldestEventsWhenFull) {
  TrackTrace trace;
  constexpr int kAll = 100000;
  for (int i = 0; i < kAll; ++i) trace.add({TrackKind::kUpdate, i, 0, 1});
  const std::vector<TrackEvent> events = trace.take();
  EXPECT_LT(events.size(), 70000u);
  EXPECT_GT(events.size(), 30000u);
  EXPECT_EQ(events.back().layer, kAll - 1);
}

}  // namespace
}  // namespace strata
