#include "strata/claim/claim.h"

#include <gtest/gtest.h>

#include <limits>

namespace strata {
namespace {

ClaimRow row_of(double published, double reproduced, Tolerance tolerance,
                Explanation explanation = {}) {
  return {.what = "a number",
          .published = published,
          .reproduced = reproduced,
          .tolerance = tolerance,
          .explanation = std::move(explanation)};
}

TEST(ClaimRow, IsReproducedWithinTheLargerTolerance) {
  EXPECT_EQ(verdict_of(row_of(100, 104, within(0.05))), Verdict::kReproduced);
  EXPECT_EQ(verdict_of(row_of(100, 106, within(0.05))), Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(-100, -94, within(0.05))), Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(1.2, 1.24, {.absolute = 0.05, .relative = 0.001})),
            Verdict::kReproduced);
  EXPECT_EQ(verdict_of(row_of(0, 0.04, {.absolute = 0.05})), Verdict::kReproduced);
}

TEST(ClaimRow, RoundingIsHalfOfTheLastDigit) {
  EXPECT_EQ(verdict_of(row_of(31.4, 31.449, rounding(1))), Verdict::kReproduced);
  EXPECT_EQ(verdict_of(row_of(31.4, 31.46, rounding(1))), Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(84, 83.6, rounding(0))), Verdict::kReproduced);
  EXPECT_EQ(verdict_of(row_of(84, 83.4, rounding(0))), Verdict::kMissed);
}

TEST(ClaimRow, IsConsistentIfItFollowsFromPublishedNumbers) {
  ClaimRow row = row_of(100, 104, within(0.05));
  row.from_published = true;
  EXPECT_EQ(verdict_of(row), Verdict::kConsistent);
  row.reproduced = 106;
  EXPECT_EQ(verdict_of(row), Verdict::kMissed);
  Claim claim{.name = "test", .rows = {row}};
  claim.rows[0].reproduced = 100;
  EXPECT_EQ(verdicts_of(claim), (VerdictCounts{.consistent = 1}));
}

TEST(ClaimRow, ExplanationCoversItsBoundOnly) {
  const Explanation why{"the batch differs", 0.3};
  EXPECT_EQ(verdict_of(row_of(100, 125, within(0.05), why)), Verdict::kExplained);
  EXPECT_EQ(verdict_of(row_of(100, 135, within(0.05), why)), Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(100, 125, within(0.05), {"cause not known", 0.3, false})),
            Verdict::kNotExplained);
  EXPECT_EQ(verdict_of(row_of(100, 135, within(0.05), {"cause not known", 0.3, false})),
            Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(100, 125, within(0.05), {"", 0.3})), Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(100, 102, within(0.05), why)), Verdict::kReproduced);
}

TEST(ClaimRow, IsMissedIfTheNumberIsNotFinite) {
  const Explanation why{"any", 1e9};
  EXPECT_EQ(verdict_of(row_of(1, std::numeric_limits<double>::quiet_NaN(), within(1), why)),
            Verdict::kMissed);
  EXPECT_EQ(verdict_of(row_of(1, std::numeric_limits<double>::infinity(), within(1), why)),
            Verdict::kMissed);
}

TEST(ClaimRow, DifferenceIsAShareOfThePublishedNumber) {
  EXPECT_DOUBLE_EQ(difference_of(row_of(200, 150, {})), -0.25);
  EXPECT_DOUBLE_EQ(difference_of(row_of(0, 0.5, {})), 0.5);
}

TEST(Claim, CountsVerdictsAndFindsAMissedRow) {
  Claim claim{.name = "test"};
  claim.rows = {row_of(1, 1, {}), row_of(1, 1.2, {}, {"known", 0.5})};
  EXPECT_EQ(verdicts_of(claim), (VerdictCounts{.reproduced = 1, .explained = 1}));
  EXPECT_EQ(exit_status({claim}), 0);
  claim.rows.push_back(row_of(1, 2, {}));
  EXPECT_EQ(verdicts_of(claim), (VerdictCounts{.reproduced = 1, .explained = 1, .missed = 1}));
  EXPECT_EQ(exit_status({Claim{}, claim}), 1);
}

}  // namespace
}  // namespace strata
