#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/clock/run_clock.h"
#include "strata/clock/target_forecast.h"

namespace strata {
namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string text_in(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::size_t count_of(const std::string& part, const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST(QualityTarget, ReadsBothDirections) {
  const QualityTarget loss = QualityTarget::parse("val_loss<=1.5", {});
  EXPECT_TRUE(loss.is_reached_by(1.5));
  EXPECT_FALSE(loss.is_reached_by(1.6));
  EXPECT_EQ(loss.value_in(2.5, {{"accuracy", 0.5}}), 2.5);
  const QualityTarget accuracy = QualityTarget::parse("accuracy>=0.9", {"accuracy"});
  EXPECT_TRUE(accuracy.is_reached_by(0.9));
  EXPECT_FALSE(accuracy.is_reached_by(0.89));
  EXPECT_EQ(accuracy.value_in(2.5, {{"accuracy", 0.5}}), 0.5);
  EXPECT_EQ(accuracy.text(), "accuracy>=0.9");
  EXPECT_FALSE(accuracy.is_reached_by(accuracy.value_in(2.5, {{"auc", 0.5}})));
}

TEST(QualityTarget, RefusesOtherForms) {
  for (const char* text :
       {"", "1.5", "val_loss", "val_loss<1.5", "val_loss<=", "<=1.5", "a==1", "val_loss<=1.5x",
        "val_loss<=nan", "val loss<=1", "val_loss<=1 ", "auc>=1"})
    EXPECT_THROW(QualityTarget::parse(text, {"a", "accuracy"}), UserError) << text;
}

TEST(TargetForecast, FindsWhereALogarithmicCurveCrosses) {
  std::vector<TimedQuality> points;
  for (int i = 1; i <= 8; ++i) points.push_back({10.0 * i, 4 - 0.5 * std::log(10.0 * i)});
  const auto forecast = forecast_target(points, 1);
  ASSERT_TRUE(forecast);
  EXPECT_NEAR(forecast->seconds, std::exp(6.0), 1e-6 * std::exp(6.0));
  EXPECT_NEAR(forecast->earliest, forecast->seconds, 1e-3);
  EXPECT_NEAR(forecast->latest, forecast->seconds, 1e-3);
  EXPECT_EQ(text_of(*forecast, std::exp(6.0) - 60), "in 1 min 00 s (1 min 00 s to 1 min 00 s)");
}

TEST(TargetForecast, UsesTheLaterHalf) {
  std::vector<TimedQuality> points;
  for (int i = 1; i <= 4; ++i) points.push_back({1.0 * i, 9.0});
  for (int i = 5; i <= 8; ++i) points.push_back({1.0 * i, 4 - std::log(1.0 * i)});
  EXPECT_NEAR(forecast_target(points, 1)->seconds, std::exp(3.0), 1e-6);
}

TEST(TargetForecast, RangeWidensWithNoise) {
  std::vector<TimedQuality> points;
  for (int i = 1; i <= 12; ++i)
    points.push_back({10.0 * i, 4 - 0.5 * std::log(10.0 * i) + (i % 2 ? 0.02 : -0.02)});
  const auto forecast = forecast_target(points, 1.2);
  ASSERT_TRUE(forecast);
  EXPECT_LT(forecast->earliest, forecast->seconds);
  EXPECT_GT(forecast->latest, forecast->seconds);
  EXPECT_LT(forecast->earliest, std::exp(2.8 / 0.5));
  EXPECT_GT(forecast->latest, std::exp(2.8 / 0.5));
}

TEST(TargetForecast, IsNoneWithoutProgress) {
  EXPECT_FALSE(forecast_target({{1, 3}, {2, 2}}, 1));
  EXPECT_FALSE(forecast_target({{1, 2}, {2, 2}, {3, 2}}, 1));
  EXPECT_FALSE(forecast_target({{1, 2}, {2, 2.5}, {3, 3}}, 1));
  EXPECT_TRUE(forecast_target({{1, 0.2}, {2, 0.3}, {3, 0.4}}, 0.9));
}

TEST(EnergyCounter, AddsPackagesAndCountsARestartedCounterOnce) {
  const ScratchFolder scratch;
  const std::string folder = scratch.path();
  for (const char* name : {"intel-rapl:0", "intel-rapl:1", "intel-rapl:0:0", "dtpm"})
    std::filesystem::create_directories(folder + "/" + name);
  write(folder + "/intel-rapl:0/energy_uj", "9000000");
  write(folder + "/intel-rapl:0/max_energy_range_uj", "10000000");
  write(folder + "/intel-rapl:1/energy_uj", "1000000");
  write(folder + "/intel-rapl:0:0/energy_uj", "1");
  EnergyCounter counter(folder);
  EXPECT_EQ(counter.joules(), 0);
  write(folder + "/intel-rapl:0/energy_uj", "2000000");
  write(folder + "/intel-rapl:1/energy_uj", "1500000");
  write(folder + "/intel-rapl:0:0/energy_uj", "77000000");
  EXPECT_NEAR(*counter.joules(), 3.5, 1e-9);
  EXPECT_NEAR(*counter.joules(), 3.5, 1e-9);
  EXPECT_FALSE(EnergyCounter(folder + "/none").joules());
}

RunFile example_run() {
  return {.title = "GPT",
          .recipe = "a: 1\n",
          .version = "1",
          .machine = "a machine",
          .ranks = 2,
          .seed = 7,
          .restarts = 1,
          .began_milliseconds = 1'700'000'000'123,
          .target = "val_loss<=1.5",
          .status = RunStatus::kReached,
          .seconds = 12.5,
          .median_step_seconds = 0.25,
          .joules = 3.5,
          .validations = {
              {.step = 10, .samples = 80, .seconds = 5, .loss = 2, .metrics = {{"auc", 0.5}}}}};
}

TEST(RunFile, IsReadAsItWasWritten) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/run.json";
  example_run().write(path);
  const RunFile run = RunFile::read(path);
  EXPECT_EQ(run.title, "GPT");
  EXPECT_EQ(run.recipe, "a: 1\n");
  EXPECT_EQ(run.began_milliseconds, 1'700'000'000'123);
  EXPECT_EQ(run.status, RunStatus::kReached);
  EXPECT_EQ(run.joules, 3.5);
  EXPECT_EQ(run.validations.at(0).samples, 80);
  EXPECT_EQ(run.validations.at(0).metrics, (NamedMetrics{{"auc", 0.5}}));
  example_run().write(path + "2");
  EXPECT_EQ(text_in(path), text_in(path + "2"));
}

TEST(RunFile, RefusesOtherFiles) {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/run.json";
  for (const char* text :
       {"", "{}", "[1]", "{\"format\": \"strata run 2\"}", "{\"format\": \"strata run 1\"}"}) {
    write(path, text);
    EXPECT_THROW(RunFile::read(path), UserError) << text;
  }
  EXPECT_THROW(RunFile::read(path + ".none"), UserError);
}

TEST(RunClock, WritesTheEventsInTheOrderOfTheRules) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/out.log";
  RunClock clock({.mllog = log, .target = QualityTarget::parse("accuracy>=0.5", {"accuracy"})});
  clock.start({.title = "net", .recipe = "", .version = "1", .machine = "m", .precision = "bf16"});
  clock.data_are_open(100, 10);
  clock.validation_begins(5, 50);
  EXPECT_EQ(clock.validated({.step = 5, .samples = 50, .loss = 1, .metrics = {{"accuracy", 0.25}}}),
            "target   accuracy>=0.5, now 0.2500");
  clock.validation_begins(10, 100);
  const std::string line =
      clock.validated({.step = 10, .samples = 100, .loss = 1, .metrics = {{"accuracy", 0.75}}});
  EXPECT_TRUE(line.starts_with("target   accuracy>=0.5 reached: 0.7500 after ")) << line;
  clock.end(RunStatus::kReached, 1);
  const std::string text = text_in(log);
  std::size_t at = 0;
  for (const char* key :
       {"init_start", "init_stop", "run_start", "submission_benchmark", "\"bfloat16\"",
        "train_samples", "block_start", "eval_start", "eval_accuracy\", \"value\": 0.25",
        "eval_stop", "block_stop", "block_start", "eval_start", "eval_accuracy", "eval_stop",
        "block_stop", "run_stop", "\"success\""}) {
    std::string plain = key;
    std::erase(plain, ' ');
    const std::size_t found = text.find(plain, at);
    EXPECT_NE(found, std::string::npos) << key << " in\n" << text;
    at = found == std::string::npos ? at : found + 1;
  }
}

TEST(RunClock, AMissedTargetIsAborted) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/out.log";
  RunClock clock({.mllog = log, .target = QualityTarget::parse("val_loss<=0.5", {})});
  clock.start({});
  clock.end(RunStatus::kMissed, 1);
  EXPECT_EQ(count_of("\"aborted\"", text_in(log)), 1u);
}

TEST(RunClock, AResumedRunContinuesItsFilesAndItsTime) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/out.log", file = scratch.path() + "/run.json";
  {
    RunClock clock({.mllog = log, .run_file = file});
    clock.start({.title = "net"});
    clock.data_are_open(100, 10);
    clock.validation_begins(5, 50);
    clock.validated({.step = 5, .samples = 50, .loss = 1, .metrics = {}});
    clock.end(RunStatus::kStopped, 1);
  }
  RunFile run = RunFile::read(file);
  EXPECT_EQ(run.status, RunStatus::kStopped);
  run.began_milliseconds -= 1'000'000;  // as if it had begun earlier
  run.write(file);
  RunClock clock({.mllog = log, .run_file = file, .resumes = true});
  clock.start({.title = "net"});
  clock.data_are_open(100, 10);
  EXPECT_GE(clock.seconds(), 1000);
  clock.validation_begins(10, 100);
  clock.validated({.step = 10, .samples = 100, .loss = 0.5, .metrics = {}});
  clock.end(RunStatus::kComplete, 1);
  const RunFile resumed = RunFile::read(file);
  EXPECT_EQ(resumed.restarts, 1);
  EXPECT_EQ(resumed.validations.size(), 2u);
  EXPECT_GE(resumed.seconds, 1000);
  for (const char* key :
       {"\"init_start\"", "\"run_start\"", "\"run_stop\"", "\"train_samples\"", "\"seed\""})
    EXPECT_EQ(count_of(key, text_in(log)), 1u) << key;
  // Without --resume a run begins its file anew.
  RunClock again({.run_file = file});
  again.start({.title = "net"});
  EXPECT_EQ(RunFile::read(file).validations.size(), 0u);
}

TEST(Mllog, RefusesAFileThatIsNoLog) {
  const ScratchFolder scratch;
  write(scratch.path() + "/notes", "my notes\n");
  EXPECT_THROW(Mllog(scratch.path() + "/notes"), UserError);
  EXPECT_EQ(text_in(scratch.path() + "/notes"), "my notes\n");
  EXPECT_THROW(Mllog("/nowhere/out.log"), UserError);
}

}  // namespace
}  // namespace strata
