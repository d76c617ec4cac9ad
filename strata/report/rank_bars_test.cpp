// Tests the lengths and titles of the report's bars.
#include <gtest/gtest.h>

#include "strata/report/example_report_test.h"

namespace strata {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

bool contains(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

// Whether there is a segment of that width whose title begins like this.
bool has_segment(const std::string& html, const std::string& width, const std::string& title) {
  return contains(html, "style=\"width:" + width + "%\" data-tip=\"" + title);
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
  const std::string html = to_html(memory_of(200, 150));
  EXPECT_TRUE(has_segment(html, "49.505", "weights: 100.00 MiB of 200.00 MiB predicted"));
  EXPECT_TRUE(has_segment(html, "24.752", "values: 50.00 MiB"));
  EXPECT_TRUE(has_segment(html, "24.752", "predicted peak: 200.00 MiB"));  // bytes of no kind
  EXPECT_TRUE(has_segment(html, "74.257", "measured peak: 150.00 MiB"));
}

TEST(MemoryBars, FitScaleOfLongestBar) {
  EXPECT_TRUE(has_segment(to_html(memory_of(150, 200)), "99.010", "measured peak: 200.00 MiB"));
  const std::string html = to_html(memory_of(200, 200, 400));
  EXPECT_TRUE(contains(html, "<div class=\"budget\" style=\"left:99.010%\">"));
  EXPECT_TRUE(has_segment(html, "24.752", "weights: 100.00 MiB"));
  ReportInput host = memory_of(200, 200);
  host.host_memory = {{.kinds = {{"states", 300 * kMiB}},
                       .predicted_peak = 300 * kMiB,
                       .measured_peak = 400 * kMiB}};
  EXPECT_TRUE(has_segment(to_html(host), "99.010", "measured peak: 400.00 MiB"));
  EXPECT_TRUE(has_segment(to_html(host), "74.257", "states: 300.00 MiB"));
}

ReportTimeline half_idle(double seconds) {
  return {.ranks = {{{Op::kForward, 0, 0, 0, 0, seconds / 2}}}, .step_seconds = seconds};
}

// Bars of one report share one scale; titles refer to the rank's own step.
TEST(TimeBars, AreProportionalToSeconds) {
  ReportInput input{.title = "time"};
  input.predicted = half_idle(1), input.measured = half_idle(2);
  const std::string html = to_html(input);
  EXPECT_TRUE(has_segment(html, "25.000", "predicted compute: 500 ms, 50.0 %"));
  EXPECT_TRUE(has_segment(html, "50.000", "measured compute: 1 s, 50.0 %"));
  EXPECT_TRUE(contains(html, "50.0 % <em>idle, predicted</em>"));
}

// Copies overlap with a rank that computes itself, so its numbers are its own.
TEST(TimeBars, HaveNumbersUnlessDevicesDidTheWork) {
  ReportInput input{.title = "lanes"};
  input.measured = half_idle(1);
  input.measured.lanes = {{{LaneKind::kToDevice, 0, 0.0, 0.25}}};
  EXPECT_TRUE(contains(to_html(input), "rank 0, measured</th>"));
  input.measured.lanes[0][0].lane = LaneKind::kCompute;
  EXPECT_FALSE(contains(to_html(input), "rank 0, measured</th><td>500 ms"));
  EXPECT_TRUE(contains(to_html(input), "gave their work to devices"));
}

}  // namespace
}  // namespace strata
