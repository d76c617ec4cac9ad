#include "strata/report/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace strata {
namespace {

StepRecord at(std::int64_t step) {
  return {.step = step,
          .loss = 2.5,
          .units_per_second = 5200,
          .step_seconds = 1.5,
          .bubble = 0.125,
          .peak_bytes = {1 << 20, 3 << 20}};
}

std::ptrdiff_t lines(const std::string& text) { return std::ranges::count(text, '\n'); }

TEST(ProgressText, ShowsProgressLossSpeedAndTimeLeft) {
  EXPECT_EQ(progress_text(at(12), 400, 600),
            "step  12/400  loss 2.5000  5.2 k tokens/s  1.5 s/step  bubble 12.5 %  memory 3.00 MiB"
            "  left 10 min 00 s");
}

TEST(ProgressText, LastStepHasNoTimeLeft) {
  EXPECT_EQ(progress_text(at(400), 400, 0).find("left"), std::string::npos);
}

TEST(ProgressText, NamesValidationLossIfThereIsOne) {
  StepRecord record = at(1);
  record.validation_loss = 1.875;
  EXPECT_NE(progress_text(record, 2, 1).find("loss 2.5000  validation 1.8750  "),
            std::string::npos);
}

TEST(ProgressText, CountsSamplesAndBytesOfEmbeddings) {
  StepRecord record = at(1);
  record.unit = "sample";
  record.embedding = EmbeddingRecord{.size = EmbeddingSize{.bytes = 5 << 20}};
  EXPECT_NE(progress_text(record, 2, 1).find("5.2 k samples/s  "), std::string::npos);
  EXPECT_NE(progress_text(record, 2, 1).find("memory 3.00 MiB + rows 5.00 MiB  "),
            std::string::npos);
}

TEST(Progress, WritesOnlyPrintableLinesIntoPipe) {
  std::ostringstream out;
  {
    Progress progress(out, {.total_steps = 5, .every_steps = 1});
    for (int step = 1; step <= 5; ++step) progress.update(at(step), step);
    progress.note("saved step_5");
  }
  EXPECT_EQ(lines(out.str()), 6);
  for (const char c : out.str()) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int{c};
}

TEST(Progress, WritesPlainLinesAtIntervalOfStepsAndFirstAndLast) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 25, .every_steps = 10});
  for (int step = 1; step <= 25; ++step) progress.update(at(step), step);
  EXPECT_EQ(lines(out.str()), 4);  // 1, 10, 20, 25
}

TEST(Progress, WritesPlainLinesAtIntervalOfSecondsByDefault) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 100, .every_seconds = 10});
  for (int step = 1; step <= 99; ++step) progress.update(at(step), 1000 + 0.5 * step);
  EXPECT_EQ(lines(out.str()), 5);  // the first, then at 10, 20, 30 and 40 seconds
}

TEST(Progress, WritesEveryValidation) {
  StepRecord validated = at(2);
  validated.validation_loss = 1.875;
  for (const bool terminal : {false, true}) {
    std::ostringstream out;
    {
      Progress progress(out, {.total_steps = 100, .terminal = terminal});
      progress.update(at(1), 1000);
      progress.update(validated, 1000.01);
      progress.update(at(3), 1000.02);
      progress.update(at(4), 1001);
    }
    const std::string text = out.str();
    const std::size_t found = text.find("validation 1.8750");
    ASSERT_NE(found, std::string::npos) << text;
    EXPECT_LT(text.find('\n', found), text.find('\r', found)) << "it is not written over";
  }
}

TEST(Progress, RewritesOneLineOnTerminal) {
  std::ostringstream out;
  {
    Progress progress(out, {.total_steps = 3, .terminal = true});
    for (int step = 1; step <= 3; ++step) progress.update(at(step), step);
  }
  EXPECT_EQ(lines(out.str()), 1);
  EXPECT_TRUE(out.str().ends_with("\n"));
  EXPECT_EQ(std::ranges::count(out.str(), '\r'), 3);
}

TEST(Progress, LimitsRateOfRewriting) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 1000, .terminal = true});
  for (int step = 1; step <= 100; ++step) progress.update(at(step), 50 + 0.001 * step);
  EXPECT_EQ(std::ranges::count(out.str(), '\r'), 1);
}

TEST(Progress, CutsLineToTerminalWidth) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 3, .terminal = true, .columns = 20});
  progress.update(at(1), 0);
  EXPECT_EQ(out.str(), "\rstep 1/3  loss 2.50\x1b[K");
}

TEST(Progress, PutsNoteAboveRewrittenLine) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 3, .terminal = true, .columns = 9});
  progress.update(at(1), 0);
  out.str("");
  progress.note("saved");
  EXPECT_EQ(out.str(), "\r\x1b[Ksaved\n\rstep 1/3\x1b[K");
}

TEST(Progress, EstimatesTimeLeftByWallClockWithoutFirstStep) {
  std::ostringstream out;
  Progress progress(out, {.total_steps = 12, .every_steps = 1});
  progress.update(at(1), 100);
  out.str("");
  progress.update(at(2), 103);  // 3 s a step with what lies between steps, 10 steps to go
  EXPECT_NE(out.str().find("left 30 s"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace strata
