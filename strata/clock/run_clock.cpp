// The rules count time in epochs; here a block between two validations counts as one.
#include "strata/clock/run_clock.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/units.h"
#include "strata/clock/target_forecast.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

ordered_json no_metadata() { return ordered_json::object(); }

// In the words of MLCommons' rules.
std::string precision_name(const std::string& precision) {
  return precision == "bf16" ? "bfloat16" : precision;
}

}  // namespace

RunClock::RunClock(ClockOptions options) : options_(std::move(options)) {
  if (!options_.mllog.empty()) log_.emplace(options_.mllog);
  if (log_ && !log_->run_start_milliseconds()) {
    log_->point("cache_clear", false, no_metadata());
    log_->start("init_start", no_metadata());
  }
  std::error_code none;
  if (options_.resumes && !options_.run_file.empty() &&
      std::filesystem::exists(options_.run_file, none)) {
    run_ = RunFile::read(options_.run_file);
    ++run_.restarts;
    joules_before_ = run_.joules.value_or(0);
    blocks_ = std::ssize(run_.validations);
  }
}

void RunClock::start(const RunFacts& facts) {
  const bool continues_log = log_ && log_->run_start_milliseconds();
  if (log_ && !continues_log) {
    log_->stop("init_stop", no_metadata());
    log_->start("run_start", no_metadata());
  }
  if (run_.began_milliseconds == 0)
    run_.began_milliseconds = continues_log ? *log_->run_start_milliseconds() : wall_milliseconds();
  run_.title = facts.title;
  run_.recipe = facts.recipe;
  run_.version = facts.version;
  run_.machine = facts.machine;
  run_.ranks = facts.ranks;
  run_.seed = facts.seed;
  run_.target = options_.target ? options_.target->text() : "";
  run_.status = RunStatus::kRunning;
  if (log_ && !continues_log) log_facts(facts);
  write_run();
}

void RunClock::log_facts(const RunFacts& facts) {
  const auto point = [&](const char* key, const ordered_json& value) {
    log_->point(key, value, no_metadata());
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
    point(("lowest_numerical_precision_in_" + std::string(operation)).c_str(),
          precision_name(facts.precision));
  point("pipeline_parallelism", facts.stages);
  point("tensor_parallelism", facts.tensor_ranks);
  point("context_parallelism", 1);
  point("expert_parallelism", 1);
  point("config_filename", facts.title);
}

void RunClock::data_are_open(std::int64_t training_samples, std::int64_t validation_samples) {
  if (!log_) return;
  if (log_->run_start_milliseconds()) {
    in_block_ = true;  // begun before the run was stopped
    return;
  }
  log_->point("train_samples", training_samples, no_metadata());
  log_->point("eval_samples", validation_samples, no_metadata());
  begin_block(0, 0);
}

void RunClock::begin_block(std::int64_t step, std::int64_t samples) {
  in_block_ = true;
  log_->start("block_start", {{"first_epoch_num", blocks_ + 1},
                              {"epoch_count", 1},
                              {"step_num", step},
                              {"samples_count", samples}});
}

void RunClock::end_block() {
  if (!in_block_) return;
  in_block_ = false;
  log_->stop("block_stop", {{"first_epoch_num", blocks_}, {"epoch_count", 1}});
}

void RunClock::validation_begins(std::int64_t step, std::int64_t samples) {
  ++blocks_;
  if (!log_) return;
  log_->start("eval_start",
              {{"epoch_num", blocks_}, {"step_num", step}, {"samples_count", samples}});
}

std::string RunClock::validated(const RunValidation& validation) {
  run_.validations.push_back(validation);
  run_.validations.back().seconds = seconds();
  run_.seconds = seconds();
  write_run();
  const double value = options_.target
                           ? options_.target->value_in(validation.loss, validation.metrics)
                           : validation.loss;
  if (log_) {
    const ordered_json metadata = {{"epoch_num", blocks_},
                                   {"step_num", validation.step},
                                   {"samples_count", validation.samples}};
    log_->point("eval_accuracy", value, metadata);
    log_->stop("eval_stop", metadata);
    end_block();
    begin_block(validation.step, validation.samples);
  }
  if (!options_.target) return "";
  const std::string wanted = options_.target->text(), found = format_double(value, 4);
  if (options_.target->is_reached_by(value))
    return "target   " + wanted + " reached: " + found + " after " + format_seconds(run_.seconds);
  std::vector<TimedQuality> qualities;
  for (const RunValidation& each : run_.validations)
    qualities.push_back({each.seconds, options_.target->value_in(each.loss, each.metrics)});
  const auto forecast = forecast_target(qualities, options_.target->value);
  return "target   " + wanted + ", now " + found +
         (forecast ? ": " + text_of(*forecast, run_.seconds) : "");
}

void RunClock::end(RunStatus status, double median_step_seconds) {
  run_.status = status;
  run_.seconds = seconds();
  run_.median_step_seconds = median_step_seconds;
  write_run();
  if (!log_ || status == RunStatus::kStopped) return;  // a stopped run goes on later
  end_block();
  log_->stop("run_stop",
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
