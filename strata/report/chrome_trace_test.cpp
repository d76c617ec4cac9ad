#include "strata/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "strata/base/errors.h"

namespace strata {
namespace {

std::vector<TraceProcess> two_timelines() {
  const TraceEvent forward{Op::kForward, 0, 3, 0, 10.0, 10.5};
  const TraceEvent update{Op::kUpdate, -1, -1, -1, 10.5, 10.75};
  return {{"measured", 10.0, {{forward}, {update}}}, {"predicted", 0, {{}, {}}}};
}

TEST(ChromeTrace, GivesEveryTimelineAProcessAndEveryRankANamedThread) {
  const auto events = nlohmann::json::parse(to_chrome_trace(two_timelines()))["traceEvents"];
  std::vector<std::string> names;
  for (const auto& event : events) {
    if (event["ph"] == "M") names.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(names, std::vector<std::string>(
                       {"measured", "rank 0", "rank 1", "predicted", "rank 0", "rank 1"}));
}

TEST(ChromeTrace, PlacesSpansInMicrosecondsFromTheOrigin) {
  const auto events = nlohmann::json::parse(to_chrome_trace(two_timelines()))["traceEvents"];
  const auto& forward = events[2];
  EXPECT_EQ(forward["name"], "F s0 m3");
  EXPECT_EQ(forward["ts"], 0);
  EXPECT_EQ(forward["dur"], 500'000);
  EXPECT_EQ(forward["args"]["micro_batch"], 3);
  const auto& update = events[4];
  EXPECT_EQ(update["tid"], 1);
  EXPECT_EQ(update["ts"], 500'000);
  EXPECT_TRUE(update["args"].empty());
}

TEST(ChromeTrace, IsValidWithoutAnyEvent) {
  EXPECT_TRUE(nlohmann::json::parse(to_chrome_trace({}))["traceEvents"].empty());
}

TEST(ChromeTrace, SaysWhichFileCannotBeWritten) {
  try {
    write_chrome_trace("/nonexistent/trace.json", {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "/nonexistent/trace.json");
  }
}

}  // namespace
}  // namespace strata
