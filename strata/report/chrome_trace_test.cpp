#include "strata/report/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"

namespace strata {
namespace {

std::vector<TraceProcess> two_timelines() {
  const TraceEvent forward{Op::kForward, 0, 3, 0, 10.0, 10.5};
  const TraceEvent update{Op::kUpdate, -1, -1, -1, 10.5, 10.75};
  return {{"measured", 10.0, {{forward}, {update}}, {}}, {"predicted", 0, {{}, {}}, {}}};
}

TEST(ChromeTrace, WritesProcessPerTimelineAndNamedThreadPerRank) {
  const auto events = nlohmann::json::parse(to_chrome_trace(two_timelines()))["traceEvents"];
  std::vector<std::string> names;
  for (const auto& event : events) {
    if (event["ph"] == "M") names.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(names, std::vector<std::string>(
                       {"measured", "rank 0", "rank 1", "predicted", "rank 0", "rank 1"}));
}

TEST(ChromeTrace, PlacesSpansInMicrosecondsFromOrigin) {
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

TEST(ChromeTrace, PlacesTracksAfterTheirRank) {
  std::vector<TraceProcess> processes = two_timelines();
  processes[0].tracks = {
      {{TrackKind::kToDevice, 4, 10.25, 10.5}, {TrackKind::kToDevice, 5, 10.5, 11}},
      {{TrackKind::kUpdate, 4, 10.0, 10.25}}};
  const auto events = nlohmann::json::parse(to_chrome_trace(processes))["traceEvents"];
  std::map<std::pair<int, int>, std::string> names;  // names of threads, by process and place
  std::map<std::pair<int, int>, int> places;
  for (const auto& event : events)
    if (event["name"] == "thread_sort_index")
      places[{event["pid"], event["tid"]}] = event["args"]["sort_index"];
  for (const auto& event : events) {
    const std::pair<int, int> thread{event["pid"], event["tid"]};
    if (event["name"] == "thread_name" && thread.first == 0)
      names[{0, places.at(thread)}] = event["args"]["name"];
  }
  std::vector<std::string> shown;
  for (const auto& [place, name] : names) shown.push_back(name);
  EXPECT_EQ(shown, std::vector<std::string>(
                       {"rank 0", "rank 0, link in", "rank 1", "rank 1, host update"}));
  int fetches = 0;
  for (const auto& event : events) {
    if (event.value("cat", "") != "link in") continue;
    ++fetches;
    EXPECT_GT(event["tid"], 1);
    if (event["name"] == "layer 4") {
      EXPECT_EQ(event["ts"], 250'000);
      EXPECT_EQ(event["dur"], 250'000);
      EXPECT_EQ(event["args"]["layer"], 4);
    }
  }
  EXPECT_EQ(fetches, 2);
}

TEST(ChromeTrace, IsValidWithoutEvents) {
  EXPECT_TRUE(nlohmann::json::parse(to_chrome_trace({}))["traceEvents"].empty());
}

TEST(ChromeTrace, ErrorNamesFileThatCannotBeWritten) {
  try {
    write_chrome_trace("/nonexistent/trace.json", {});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "/nonexistent/trace.json");
  }
}

}  // namespace
}  // namespace strata
