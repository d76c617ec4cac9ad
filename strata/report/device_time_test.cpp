#include "strata/report/device_time.h"

#include <gtest/gtest.h>

#include "strata/report/chrome_trace.h"
#include "strata/report/example_report_test.h"
#include "strata/report/idle.h"

namespace strata {
namespace {

// A step from 10 to 20: compute at 11-13, 13-14 and 16-18; sums at 12-15; copies at 15-16.5; and an
// update on the host, which does not count here.
const std::vector<TrackEvent> kTracks{
    {TrackKind::kCompute, 0, 11, 13},     {TrackKind::kCompute, 1, 13, 14},
    {TrackKind::kCommunicate, 1, 12, 15}, {TrackKind::kToDevice, 3, 15, 16.5},
    {TrackKind::kCompute, 2, 16, 18},     {TrackKind::kUpdate, 2, 10, 20},
    {TrackKind::kCompute, 7, 4, 9},       {TrackKind::kCompute, 8, 19.5, 30}};

TEST(DeviceTime, CountsEveryInstantOnce) {
  const DeviceTime time = device_time(kTracks, 10, 20);
  EXPECT_DOUBLE_EQ(time.busy, 3 + 2 + 0.5);
  EXPECT_DOUBLE_EQ(time.exposed_communication, 1);
  EXPECT_DOUBLE_EQ(time.exposed_copies, 1);
  EXPECT_DOUBLE_EQ(time.gaps, 1 + 1.5);
  EXPECT_DOUBLE_EQ(time.busy + time.exposed_communication + time.exposed_copies + time.gaps, 10);
  EXPECT_DOUBLE_EQ(time.longest_gap, 1.5);
  EXPECT_EQ(time.longest_gap_layer, 8);
}

TEST(DeviceTime, FindsLongestGapAtAnyPosition) {
  const auto track = [](int layer, double begin, double end) {
    return TrackEvent{TrackKind::kCompute, layer, begin, end};
  };
  const DeviceTime last_gap = device_time({track(3, 1, 4)}, 0, 10);
  EXPECT_EQ(last_gap.longest_gap, 6);
  EXPECT_EQ(last_gap.longest_gap_layer, -1);  // no work follows
  const DeviceTime equal = device_time({track(1, 2, 4), track(2, 6, 10)}, 0, 10);
  EXPECT_EQ(equal.longest_gap, 2);
  EXPECT_EQ(equal.longest_gap_layer, 1);  // the first of equal ones
  const DeviceTime none = device_time({track(1, 0, 4), track(2, 4, 10)}, 0, 10);
  EXPECT_EQ(none.gaps, 0);
  EXPECT_EQ(none.longest_gap_layer, -1);
}

TEST(DeviceTime, IsZeroWithoutDeviceTracks) {
  const DeviceTime time = device_time({{TrackKind::kToDevice, 0, 1, 2}}, 0, 10);
  EXPECT_EQ(time.busy + time.gaps + time.exposed_copies, 0);
}

TEST(DeviceTime, AppearsInReportAndTrace) {
  ReportInput input{.title = "t"};
  input.measured = {.ranks = {{}}, .tracks = {kTracks}, .begin_seconds = 10, .step_seconds = 10};
  using Row = std::vector<std::string>;
  const nlohmann::json rows = card_of(input, "devices")["table"]["rows"];
  ASSERT_EQ(rows.size(), 1u);
  const Row measured = rows[0];
  EXPECT_EQ(measured[0], "rank 0, measured");
  EXPECT_NE(measured[1].find("55.0 %"), std::string::npos) << measured[1];
  EXPECT_NE(measured[5].find("before layer 8"), std::string::npos) << measured[5];
  input.predicted = {
      .ranks = {{}}, .tracks = {{{TrackKind::kCompute, 0, 0, 3}}}, .step_seconds = 4};
  const Row predicted = card_of(input, "devices")["table"]["rows"][0];
  EXPECT_EQ(predicted[0], "rank 0, predicted");
  EXPECT_EQ(predicted[1], "3 s, 75.0 %");
  input.predicted = {};
  // the device may do nothing else
  input.measured.tracks = {{{TrackKind::kCommunicate, 0, 11, 12}}};
  EXPECT_EQ(card_of(input, "devices")["table"]["rows"][0][0], "rank 0, measured");
  input.measured.tracks = {{{TrackKind::kToDevice, 0, 11, 12}}};
  EXPECT_TRUE(card_of(input, "devices").is_null());
  const std::string trace =
      to_chrome_trace({{.name = "p", .origin_seconds = 10, .ranks = {{}}, .tracks = {kTracks}}});
  EXPECT_NE(trace.find("rank 0, device"), std::string::npos);
  EXPECT_NE(trace.find("rank 0, collectives"), std::string::npos);
}

// Work of a device for the rank's own action does not explain why the rank waits for something
// else.
TEST(DeviceTime, DoesNotExplainWaits) {
  const std::vector<std::vector<TraceEvent>> ranks{{{Op::kPrefetchWeights, 0, -1, 0, 0, 4}}};
  const std::vector<TrackEvent> compute{{TrackKind::kCompute, 0, 0, 4}};
  const TimeSplit with = attribute_time(ranks, 0, 4, {compute})[0],
                  without = attribute_time(ranks, 0, 4)[0];
  EXPECT_EQ(with.seconds, without.seconds);
}

// The time of an action beyond the device's work is a wait for launches.
TEST(DeviceTime, IsWorkOfRankWithDevice) {
  const std::vector<std::vector<TraceEvent>> ranks{
      {{Op::kForward, 0, 0, 0, 0, 4}, {Op::kUpdate, 0, -1, 0, 4, 10}}};
  const std::vector<TrackEvent> tracks{{TrackKind::kCompute, 0, 1, 3},
                                       {TrackKind::kToHost, 0, 3, 4},
                                       {TrackKind::kCompute, 0, 6, 8},
                                       {TrackKind::kCompute, 0, 8, 9}};
  const TimeSplit split = attribute_time(ranks, 0, 10, {tracks})[0];
  EXPECT_EQ(split[TimeUse::kCompute], 2);
  EXPECT_EQ(split[TimeUse::kUpdate], 3);
  EXPECT_EQ(split[TimeUse::kLaunch], 2 + 3);
  EXPECT_EQ(sums_of(split).work, device_time(tracks, 0, 10).busy);
  // A rank that computes itself has no such track.
  EXPECT_EQ(attribute_time(ranks, 0, 10, {{tracks[1]}})[0][TimeUse::kUpdate], 6);
}

}  // namespace
}  // namespace strata
