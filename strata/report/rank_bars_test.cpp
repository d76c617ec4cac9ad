// Tests the lengths and titles of the report's bars.
#include <gtest/gtest.h>

#include "strata/report/example_report_test.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Whether there is a segment of that length whose title begins like this.
bool has_segment(const nlohmann::json& card, double percent, const std::string& title) {
  return std::ranges::any_of(segments_of(card), [&](const auto& segment) {
    return segment["percent"] == percent &&
           segment["title"].template get<std::string>().starts_with(title);
  });
}

ReportInput memory_of(std::int64_t predicted, std::int64_t measured, std::int64_t budget = 0) {
  ReportInput input{.title = "memory"};
  input.memory = {{.kinds = {{"weights", 100 * kMiB}, {"values", 50 * kMiB}},
                   .predicted_peak = predicted * kMiB,
                   .measured_peak = measured * kMiB}};
  input.budget_bytes = budget * kMiB;
  return input;
}

// The scale ends one per cent beyond the longest bar.
TEST(MemoryBars, AreProportionalToBytes) {
  const nlohmann::json card = card_of(memory_of(200, 150), "memory");
  EXPECT_TRUE(has_segment(card, 49.505, "weights: 100.00 MiB of 200.00 MiB predicted"));
  EXPECT_TRUE(has_segment(card, 24.752, "values: 50.00 MiB"));
  EXPECT_TRUE(has_segment(card, 24.752, "predicted peak: 200.00 MiB"));  // bytes of no kind
  EXPECT_TRUE(has_segment(card, 74.257, "measured peak: 150.00 MiB"));
}

TEST(MemoryBars, FitScaleOfLongestBar) {
  EXPECT_TRUE(has_segment(card_of(memory_of(150, 200), "memory"), 99.01, "measured peak: 200.00"));
  const nlohmann::json card = card_of(memory_of(200, 200, 400), "memory");
  EXPECT_EQ(card["bars"][0]["budget_percent"], 99.01);
  EXPECT_TRUE(has_segment(card, 24.752, "weights: 100.00 MiB"));
  ReportInput host = memory_of(200, 200);
  host.host_memory = {{.kinds = {{"states", 300 * kMiB}},
                       .predicted_peak = 300 * kMiB,
                       .measured_peak = 400 * kMiB}};
  EXPECT_TRUE(has_segment(card_of(host, "memory"), 99.01, "measured peak: 400.00 MiB"));
  EXPECT_TRUE(has_segment(card_of(host, "memory"), 74.257, "states: 300.00 MiB"));
}

ReportTimeline half_idle(double seconds) {
  return {.ranks = {{{Op::kForward, 0, 0, 0, 0, seconds / 2}}}, .step_seconds = seconds};
}

// Bars of one report share one scale; titles refer to the rank's own step.
TEST(TimeBars, AreProportionalToSeconds) {
  ReportInput input{.title = "time"};
  input.predicted = half_idle(1), input.measured = half_idle(2);
  const nlohmann::json card = card_of(input, "idle");
  EXPECT_TRUE(has_segment(card, 25, "predicted compute: 500 ms, 50.0 %"));
  EXPECT_TRUE(has_segment(card, 50, "measured compute: 1 s, 50.0 %"));
  EXPECT_EQ(card["bars"][0]["figures"][0],
            nlohmann::json({{"value", "50.0 %"}, {"note", "idle, predicted"}}));
}

// Copies overlap with a rank that computes itself, so its numbers are its own.
TEST(TimeBars, HaveNumbersUnlessDevicesDidTheWork) {
  ReportInput input{.title = "tracks"};
  input.measured = half_idle(1);
  input.measured.tracks = {{{TrackKind::kToDevice, 0, 0.0, 0.25}}};
  EXPECT_EQ(card_of(input, "idle")["table"]["rows"][0][0], "rank 0, measured");
  input.measured.tracks[0][0].track = TrackKind::kCompute;
  const nlohmann::json card = card_of(input, "idle");
  EXPECT_FALSE(card.contains("table"));
  EXPECT_NE(card["note"].get<std::string>().find("gave their work to devices"), std::string::npos);
}

}  // namespace
}  // namespace strata
