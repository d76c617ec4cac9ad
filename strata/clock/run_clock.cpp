// The rules count time in epochs; here a block that ends with a validation counts as one.
#include "strata/clock/run_clock.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/clock/target_forecast.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr ErrorSource kClockErrors{"clock.resume"};

// MLCommons' rules name it so.
std::string in_the_rules(const std::string& precision) {
  return precision == "bf16" ? "bfloat16" : precision;
}

}  // namespace

RunClock::RunClock(ClockOptions options)
    : options_(std::move(options)), init_milliseconds_(wall_milliseconds()) {
  if (!options_.mllog.empty()) past_ = read_mllog(options_.mllog);
  if (!options_.resumes) {
    past_ = {};
    return;
  }
  blocks_ = past_.evaluations;
  std::error_code none;
  if (options_.run_file.empty() || !std::filesystem::exists(options_.run_file, none)) return;
  run_ = RunFile::read(options_.run_file);
  ++run_.restarts;
  joules_before_ = run_.joules.value_or(0);
}

void RunClock::start() {
  block_milliseconds_ = wall_milliseconds();
  if (run_.began_milliseconds == 0)
    run_.began_milliseconds = past_.run_start_milliseconds.value_or(block_milliseconds_);
}

void RunClock::open_files(const RunFacts& facts) {
  if (run_.restarts > 0 && (run_.title != facts.title || run_.seed != facts.seed))
    throw kClockErrors.user(options_.run_file, "it is the file of another run",
                            facts.title + " with seed " + std::to_string(facts.seed),
                            run_.title + " with seed " + std::to_string(run_.seed),
                            "name the file of the run that is resumed, or a new one");
  // The run repeats those after its checkpoint.
  std::erase_if(run_.validations,
                [&](const RunValidation& each) { return each.step > facts.steps_done; });
  run_.title = facts.title;
  run_.recipe = facts.recipe;
  run_.version = facts.version;
  run_.machine = facts.machine;
  run_.ranks = facts.ranks;
  run_.seed = facts.seed;
  run_.target = options_.target ? options_.target->text() : "";
  run_.status = RunStatus::kRunning;
  if (!options_.mllog.empty()) open_log(facts);
  write_run();
}

void RunClock::open_log(const RunFacts& facts) {
  log_.emplace(options_.mllog, past_.lines);
  if (past_.run_start_milliseconds) return;
  const std::int64_t start = run_.began_milliseconds;
  log_->point(init_milliseconds_, "cache_clear", false);
  log_->start(init_milliseconds_, "init_start");
  log_->stop(start, "init_stop");
  log_->start(start, "run_start");
  const auto point = [&](const std::string& key, const ordered_json& value) {
    log_->point(start, key, value);
  };
  point("submission_benchmark", options_.benchmark);
  point("submission_org", "unverified");
  point("submission_division", "open");
  point("submission_status", "research");
  point("submission_platform", facts.machine);
  point("seed", facts.seed);
  point("global_batch_size", facts.mini_batch);
  point("micro_batch_size", facts.micro_batch);
  for (const char* operation : {"linear", "attn", "comm"})
    point("lowest_numerical_precision_in_" + std::string(operation), in_the_rules(facts.precision));
  point("pipeline_parallelism", facts.stages);
  point("tensor_parallelism", facts.tensor_ranks);
  point("context_parallelism", 1);
  point("expert_parallelism", 1);
  point("config_filename", facts.title);
  point("train_samples", facts.training_samples);
  point("eval_samples", facts.validation_samples);
}

void RunClock::validation_begins(std::int64_t step, std::int64_t samples) {
  ++blocks_;
  if (!log_) return;
  const std::int64_t now = wall_milliseconds();
  const ordered_json block = {{"first_epoch_num", blocks_}, {"epoch_count", 1}};
  log_->start(block_milliseconds_, "block_start", block);
  log_->stop(now, "block_stop", block);
  log_->start(now, "eval_start",
              {{"epoch_num", blocks_}, {"step_num", step}, {"samples_count", samples}});
}

std::string RunClock::validated(const RunValidation& validation) {
  block_milliseconds_ = wall_milliseconds();
  run_.validations.push_back(validation);
  run_.validations.back().seconds = seconds();
  run_.seconds = seconds();
  write_run();
  if (log_) {
    const double value = options_.target
                             ? options_.target->value_in(validation.loss, validation.metrics)
                             : validation.loss;
    const ordered_json metadata = {{"epoch_num", blocks_},
                                   {"step_num", validation.step},
                                   {"samples_count", validation.samples}};
    log_->point(block_milliseconds_, "eval_accuracy", value, metadata);
    log_->stop(block_milliseconds_, "eval_stop", metadata);
  }
  return options_.target ? target_text() : "";
}

std::string RunClock::target_text() const {
  const QualityTarget& target = *options_.target;
  std::vector<TimedQuality> qualities;
  double value = 0;
  for (const RunValidation& each : run_.validations) {
    value = target.value_in(each.loss, each.metrics);
    if (std::isfinite(value)) qualities.push_back({each.seconds, value});
  }
  const std::string text = "target   " + target.text();
  if (!std::isfinite(value)) return text + ", now undefined";
  if (target.is_reached_by(value))
    return text + " reached: " + format_double(value, 4) + " after " + format_seconds(run_.seconds);
  const auto forecast = forecast_target(qualities, target.value);
  return text + ", now " + format_double(value, 4) +
         (forecast ? ": " + text_of(*forecast, run_.seconds) : "");
}

void RunClock::end(RunStatus status, double median_step_seconds) {
  run_.status = status;
  run_.seconds = seconds();
  run_.median_step_seconds = median_step_seconds;
  write_run();
  if (!log_ || status == RunStatus::kStopped) return;  // a stopped run goes on later
  log_->stop(wall_milliseconds(), "run_stop",
             {{"status", status == RunStatus::kMissed ? "aborted" : "success"},
              {"samples_count", run_.validations.empty() ? 0 : run_.validations.back().samples}});
}

double RunClock::seconds() const {
  return static_cast<double>(wall_milliseconds() - run_.began_milliseconds) * 1e-3;
}

void RunClock::write_run() {
  if (const auto joules = energy_.joules()) run_.joules = joules_before_ + *joules;
  if (!options_.run_file.empty()) run_.write(options_.run_file);
}

}  // namespace strata
