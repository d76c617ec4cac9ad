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

// By hand: x = 0, 1, 2, y = 3, 2.2, 1; slope -1, mean 62/30, one degree of freedom.
TEST(TargetForecast, RangeIsThatOfTheFit) {
  const auto forecast =
      forecast_target({{std::exp(0.0), 3}, {std::exp(1.0), 2.2}, {std::exp(2.0), 1}}, 0);
  ASSERT_TRUE(forecast);
  const double crossing = 1 + 62.0 / 30, off = 62.0 / 30;
  const double squares = 3 * std::pow(1.0 / 15, 2) * 2;  // misses of -1/15, 2/15, -1/15
  const double reach = 3.078 * std::sqrt(squares) * std::sqrt(1.0 / 3 + off * off / 2);
  EXPECT_NEAR(std::log(forecast->seconds), crossing, 1e-9);
  EXPECT_NEAR(std::log(forecast->earliest), crossing - reach, 1e-9);
  EXPECT_NEAR(std::log(forecast->latest), crossing + reach, 1e-9);
}

TEST(TargetForecast, SaysWhenARangeSaysNothing) {
  const auto never = forecast_target({{1, 3.001}, {2, 3.0005}, {3, 3}}, 1);
  ASSERT_TRUE(never);
  EXPECT_TRUE(std::isinf(never->latest));
  EXPECT_EQ(text_of(*never, 3), "too early to say when");
  EXPECT_EQ(text_of({.seconds = 100, .earliest = 10, .latest = 1001}, 3), "too early to say when");
  EXPECT_EQ(text_of({.seconds = 100, .earliest = 13, .latest = 999}, 3),
            "in 1 min 37 s (10 s to 16 min 36 s)");
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

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// Whether these texts are in lines of the file in this order.
void expect_in_order(const std::string& path, const std::vector<std::string>& texts) {
  const std::vector<std::string> lines = lines_of(path);
  std::size_t at = 0;
  for (const std::string& text : texts) {
    while (at < lines.size() && lines[at].find(text) == std::string::npos) ++at;
    EXPECT_LT(at, lines.size()) << text << " in\n" << text_in(path);
    ++at;
  }
}

TEST(RunClock, WritesTheEventsInTheOrderOfTheRules) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/out.log";
  RunClock clock({.mllog = log, .target = QualityTarget::parse("accuracy>=0.5", {"accuracy"})});
  clock.start();
  EXPECT_FALSE(std::filesystem::exists(log));  // the run may yet be refused
  clock.open_files({.title = "n\xFF", .precision = "bf16", .training_samples = 100});
  clock.validation_begins(5, 50);
  EXPECT_EQ(clock.validated({.step = 5, .samples = 50, .loss = 1, .metrics = {{"accuracy", 0.25}}}),
            "target   accuracy>=0.5, now 0.2500");
  clock.validation_begins(10, 100);
  EXPECT_EQ(clock.validated({.step = 10, .samples = 100, .loss = 1, .metrics = {}}),
            "target   accuracy>=0.5, now undefined");
  clock.validation_begins(15, 150);
  const std::string line =
      clock.validated({.step = 15, .samples = 150, .loss = 1, .metrics = {{"accuracy", 0.75}}});
  EXPECT_TRUE(line.starts_with("target   accuracy>=0.5 reached: 0.7500 after ")) << line;
  clock.end(RunStatus::kReached, 1);
  std::vector<std::string> events = {"init_start", "init_stop",
                                     "run_start",  "submission_benchmark",
                                     "bfloat16",   "\"train_samples\",\"value\":100"};
  for (const char* block : {"1", "2", "3"})
    for (const char* key :
         {"block_start", "block_stop", "eval_start", "eval_accuracy", "eval_stop"})
      events.push_back(
          std::string(key).starts_with("block")
              ? key + std::string("\",\"value\":null,\"metadata\":{\"first_epoch_num\":") + block
              : key);
  events.emplace_back("\"status\":\"success\"");
  expect_in_order(log, events);
  EXPECT_EQ(count_of("block_start", text_in(log)), 3u);
  std::int64_t before = 0;
  for (const std::string& each : lines_of(log)) {
    const std::int64_t time = std::stoll(each.substr(each.find("time_ms\":") + 9));
    EXPECT_GE(time, before) << each;
    before = time;
  }
}

TEST(RunClock, AMissedTargetIsAborted) {
  const ScratchFolder scratch;
  const std::string log = scratch.path() + "/out.log";
  RunClock clock({.mllog = log, .target = QualityTarget::parse("val_loss<=0.5", {})});
  clock.start();
  clock.open_files({});
  clock.end(RunStatus::kMissed, 1);
  EXPECT_EQ(count_of("\"aborted\"", text_in(log)), 1u);
}

// A run of validations at these steps that ends with the status; kRunning: it is killed within a
// validation.
void run_clock(const ClockOptions& options, std::int64_t steps_done,
               const std::vector<std::int64_t>& steps, RunStatus status) {
  RunClock clock(options);
  clock.start();
  clock.open_files({.title = "net", .steps_done = steps_done});
  for (const std::int64_t step : steps) {
    clock.validation_begins(step, 10 * step);
    clock.validated({.step = step, .samples = 10 * step, .loss = static_cast<double>(step)});
  }
  if (status == RunStatus::kRunning)
    clock.validation_begins(99, 990);
  else
    clock.end(status, 1);
}

TEST(RunClock, AResumedRunContinuesItsFilesAndItsTime) {
  for (const RunStatus first : {RunStatus::kStopped, RunStatus::kMissed, RunStatus::kRunning}) {
    const ScratchFolder scratch;
    ClockOptions options{.mllog = scratch.path() + "/out.log",
                         .run_file = scratch.path() + "/run.json"};
    run_clock(options, 0, {5, 10}, first);
    RunFile run = RunFile::read(options.run_file);
    EXPECT_EQ(run.status, first);
    run.began_milliseconds -= 1'000'000;  // as if it had begun earlier
    run.write(options.run_file);
    options.resumes = true;
    run_clock(options, 5, {10, 15}, RunStatus::kComplete);
    run = RunFile::read(options.run_file);
    EXPECT_EQ(run.restarts, 1);
    ASSERT_EQ(run.validations.size(), 3u);  // that of step 10 was repeated
    EXPECT_EQ(run.validations[2].loss, 15);
    EXPECT_GE(run.seconds, 1000);
    const std::string text = text_in(options.mllog);
    for (const char* key : {"\"init_start\"", "\"run_start\"", "\"run_stop\"", "\"seed\""})
      EXPECT_EQ(count_of(key, text), 1u) << key << " after " << name_of(first);
    EXPECT_EQ(count_of("eval_start", text), 4u);
    EXPECT_EQ(count_of("eval_stop", text), 4u);
    EXPECT_EQ(count_of("block_start", text), 4u);
    EXPECT_EQ(count_of("\"aborted\"", text), 0u);
    expect_in_order(options.mllog,
                    {"\"epoch_num\":2", "\"epoch_num\":3", "\"epoch_num\":4", "success"});
    RunClock another(options);
    another.start();
    EXPECT_THROW(another.open_files({.title = "another"}), UserError);
  }
}

TEST(RunClock, TheLogAloneKeepsTheTimeOfARestart) {
  const ScratchFolder scratch;
  const ClockOptions options{.mllog = scratch.path() + "/out.log", .resumes = true};
  write(options.mllog,
        ":::MLLOG {\"key\": \"run_start\", \"time_ms\": 1000}\n:::MLLOG {\"key\": \"ev");
  RunClock clock(options);
  clock.start();
  EXPECT_GT(clock.seconds(), 1e9);
  clock.open_files({.title = "net"});
  EXPECT_EQ(lines_of(options.mllog).size(), 1u);
}

TEST(RunClock, ANewRunBeginsItsFilesAnew) {
  const ScratchFolder scratch;
  const ClockOptions options{.mllog = scratch.path() + "/out.log",
                             .run_file = scratch.path() + "/run.json"};
  for (int run = 0; run < 2; ++run) {
    run_clock(options, 0, {5}, RunStatus::kComplete);
    EXPECT_EQ(count_of("\"run_start\"", text_in(options.mllog)), 1u);
    EXPECT_EQ(count_of("eval_start", text_in(options.mllog)), 1u);
    EXPECT_EQ(RunFile::read(options.run_file).validations.size(), 1u);
    EXPECT_LT(RunFile::read(options.run_file).seconds, 100);
  }
}

TEST(Mllog, RefusesAFileThatIsNoLog) {
  const ScratchFolder scratch;
  write(scratch.path() + "/notes", "my notes\n");
  EXPECT_THROW(RunClock({.mllog = scratch.path() + "/notes"}), UserError);
  EXPECT_EQ(text_in(scratch.path() + "/notes"), "my notes\n");
  EXPECT_THROW(Mllog("/nowhere/out.log", ""), UserError);
}

}  // namespace
}  // namespace strata
