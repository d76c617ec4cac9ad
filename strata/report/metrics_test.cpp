#include "strata/report/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "strata/base/errors.h"

namespace strata {
namespace {

class MetricsFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  std::string read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> steps;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);) {
      steps.push_back(nlohmann::json::parse(line)["step"]);
    }
    return steps;
  }
  void write(std::initializer_list<std::int64_t> steps, std::int64_t steps_done = 0) const {
    MetricsFile file(path_, steps_done);
    for (const std::int64_t step : steps) file.write({.step = step, .loss = 1.0 / step});
  }
  void put(const std::string& text) const { std::ofstream(path_) << text; }

  std::string path_ = testing::TempDir() + "metrics_test." + std::to_string(getpid());
};

TEST(MetricsLine, HoldsExactBits) {
  const double loss = 0.1 + 0.2;
  const StepRecord record{
      .step = 7, .loss = loss, .gradient_norm = 1.0 / 3, .peak_bytes = {10, 20}};
  const auto json = nlohmann::json::parse(to_metrics_line(record));
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["loss"].get<double>(), loss);
  EXPECT_EQ(std::strtod(json["loss_hex"].get<std::string>().c_str(), nullptr), loss);
  EXPECT_EQ(std::strtod(json["gradient_norm_hex"].get<std::string>().c_str(), nullptr), 1.0 / 3);
  EXPECT_EQ(json["peak_bytes"], nlohmann::json({10, 20}));
}

TEST(MetricsLine, NamesValidationLossOnlyAfterValidation) {
  StepRecord record{.step = 1};
  EXPECT_FALSE(nlohmann::json::parse(to_metrics_line(record)).contains("validation_loss"));
  record.validation_loss = 2.5;
  EXPECT_EQ(nlohmann::json::parse(to_metrics_line(record))["validation_loss"], 2.5);
}

TEST(MetricsLine, CountsUnitOfLoss) {
  const auto text = nlohmann::json::parse(to_metrics_line({.step = 1, .units_per_second = 5}));
  EXPECT_EQ(text["tokens_per_second"], 5);
  EXPECT_FALSE(text.contains("samples_per_second"));
  const auto log =
      nlohmann::json::parse(to_metrics_line({.step = 1, .unit = "sample", .units_per_second = 7}));
  EXPECT_EQ(log["samples_per_second"], 7);
  EXPECT_FALSE(log.contains("tokens_per_second"));
}

TEST(MetricsLine, HoldsSizesOfTablesIfKnown) {
  StepRecord record{.step = 1};
  record.embedding = EmbeddingRecord{.wait_seconds = 0.5, .staleness = {{"user id", {3, 4}}}};
  auto of = nlohmann::json::parse(to_metrics_line(record))["embedding"];
  EXPECT_EQ(of["staleness"]["user id"], nlohmann::json({3, 4}));
  EXPECT_FALSE(of.contains("bytes")) << "servers were not queried";
  record.embedding->size = sum_of(
      {{"user id", {.rows = 10, .bytes = 1000, .parameters = 80}},
       {"words", {.rows = 5, .bytes = 500, .cold_rows = 2, .cold_bytes = 64, .parameters = 56}}});
  of = nlohmann::json::parse(to_metrics_line(record))["embedding"];
  EXPECT_EQ(of["rows"], 15);
  EXPECT_EQ(of["bytes"], 1500);
  EXPECT_EQ(of["cold_rows"], 2);
  EXPECT_EQ(of["cold_bytes"], 64);
  EXPECT_EQ(of["parameters"], 136);
  EXPECT_EQ(size_text(*record.embedding->size),
            "17 rows, 136 parameters; 1.46 KiB in memory, 64 B on disk");
}

TEST(MetricsLine, IsValidJsonIfLossIsNan) {
  const StepRecord record{.step = 1, .loss = std::numeric_limits<double>::quiet_NaN()};
  const auto json = nlohmann::json::parse(to_metrics_line(record));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_NE(json["loss_hex"].get<std::string>().find("nan"), std::string::npos);
}

TEST_F(MetricsFileTest, IsCompleteAfterEveryStep) {
  MetricsFile file(path_);
  file.write({.step = 1});
  EXPECT_EQ(steps(), std::vector<std::int64_t>({1}));
  file.write({.step = 2});
  EXPECT_EQ(steps(), std::vector<std::int64_t>({1, 2}));
}

TEST_F(MetricsFileTest, NewRunStartsEmptyFile) {
  write({1, 2, 3});
  write({1});
  EXPECT_EQ(steps(), std::vector<std::int64_t>({1}));
}

TEST_F(MetricsFileTest, ResumedRunReplacesLaterSteps) {
  write({1, 2, 3, 4, 5});
  write({4, 5, 6}, 3);
  EXPECT_EQ(steps(), std::vector<std::int64_t>({1, 2, 3, 4, 5, 6}));
}

TEST_F(MetricsFileTest, DropsIncompleteLastLine) {
  write({1, 2});
  std::ofstream(path_, std::ios::app) << R"({"step":3,"lo)";
  write({3}, 3);
  EXPECT_EQ(steps(), std::vector<std::int64_t>({1, 2, 3}));
}

TEST_F(MetricsFileTest, DropsIncompleteFirstLine) {
  put(R"({"step":1,"lo)");
  write({1});
  EXPECT_EQ(steps(), std::vector<std::int64_t>({1}));
}

TEST_F(MetricsFileTest, RejectsOtherFileAndKeepsIt) {
  for (const std::string text : {"In the beginning\n", "In the beginning", "{\"a\": 1}\n"}) {
    put(text);
    EXPECT_THROW(MetricsFile file(path_), UserError);
    EXPECT_EQ(read(), text);
  }
}

TEST(MetricsFile, RejectsPathThatCannotBeWritten) {
  try {
    MetricsFile file("/nonexistent/folder/metrics.jsonl");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "/nonexistent/folder/metrics.jsonl");
    EXPECT_NE(error.text().fix.find("--metrics"), std::string::npos);
  }
}

}  // namespace
}  // namespace strata
