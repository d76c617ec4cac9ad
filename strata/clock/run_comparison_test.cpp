#include "strata/clock/run_comparison.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

std::vector<RunFile> runs_of(const std::vector<double>& seconds, const std::string& target = "") {
  std::vector<RunFile> runs;
  for (const double each : seconds)
    runs.push_back({.target = target,
                    .status = target.empty() ? RunStatus::kComplete : RunStatus::kReached,
                    .seconds = each});
  return runs;
}

TEST(RunComparison, OlympicMeanLeavesOutFastestAndSlowestOfFive) {
  EXPECT_DOUBLE_EQ(olympic_mean({1, 2, 9}), 4);
  EXPECT_DOUBLE_EQ(olympic_mean({100, 2, 3, 4, 0}), 3);
}

// Against the regularised incomplete beta function.
TEST(RunComparison, PIsThatOfStudentsDistribution) {
  EXPECT_NEAR(welch_p({1, 2, 3, 4, 5}, {2, 3, 4, 5, 9}), 0.29372549123552705, 1e-9);
  EXPECT_NEAR(welch_p({10.1, 10.4, 9.9, 10.2}, {11.0, 11.3, 10.8}), 0.008354061028837692, 1e-9);
  EXPECT_NEAR(welch_p({1.0, 1.1}, {5.0, 5.3}), 0.012717579297869461, 1e-6);
  EXPECT_EQ(welch_p({1, 1}, {1, 1}), 1);
  EXPECT_EQ(welch_p({1, 1}, {2, 2}), 0);
}

TEST(RunComparison, SaysWhichSetIsFaster) {
  const RunComparison comparison =
      compare_runs(runs_of({10.1, 10.4, 9.9, 10.2}), runs_of({20.2, 20.8, 19.8, 20.4}));
  EXPECT_NEAR(comparison.ratio, 2, 1e-9);
  const std::string text = text_of(comparison, "A", "B");
  EXPECT_NE(text.find("A is 2.00 times as fast as B (p 0.0000)"), std::string::npos) << text;
  const std::string other = text_of(compare_runs(runs_of({11, 13}), runs_of({10, 12.9})), "A", "B");
  EXPECT_NE(other.find("B is 1.05 times as fast as A (p 0."), std::string::npos) << other;
  EXPECT_NE(other.find("may be chance"), std::string::npos) << other;
  EXPECT_NE(text_of(compare_runs(runs_of({1}), runs_of({2})), "A", "B").find("one run"),
            std::string::npos);
}

TEST(RunComparison, MissedRunsAreCountedAndGiveNoTime) {
  std::vector<RunFile> first = runs_of({10, 12}, "accuracy>=0.9");
  first.push_back({.target = "accuracy>=0.9", .status = RunStatus::kMissed, .seconds = 99});
  const RunComparison comparison = compare_runs(first, runs_of({10, 12}, "accuracy>=0.9"));
  EXPECT_EQ(comparison.first.missed, 1u);
  EXPECT_DOUBLE_EQ(comparison.first.mean, 11);
}

TEST(RunComparison, EnergyNeedsEveryRunsCounter) {
  std::vector<RunFile> first = runs_of({10, 12}), second = runs_of({10, 12});
  first[0].joules = 5;
  first[1].joules = 7;
  second[0].joules = 5;
  const RunComparison comparison = compare_runs(first, second);
  EXPECT_EQ(comparison.first.joules, 6);
  EXPECT_FALSE(comparison.second.joules);
}

TEST(RunComparison, RefusesOtherTargetsAndUnfinishedRuns) {
  EXPECT_THROW(compare_runs(runs_of({1}, "a<=1"), runs_of({1}, "a<=2")), UserError);
  for (const RunStatus status : {RunStatus::kRunning, RunStatus::kStopped}) {
    std::vector<RunFile> runs = runs_of({1, 2});
    runs[1].status = status;
    EXPECT_THROW(compare_runs(runs_of({1}), runs), UserError);
  }
  EXPECT_THROW(compare_runs({{.status = RunStatus::kMissed}}, runs_of({1})), UserError);
}

}  // namespace
}  // namespace strata
