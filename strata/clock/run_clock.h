/// The clock of a run: from before the data are touched to the validation that reaches the target.
/// It writes MLCommons' log and the run's file, and predicts when the target is reached.
///
///     RunClock clock({.mllog = "out.log"});        // at the program's start
///     clock.start(facts);                          // before data are opened
///     clock.data_are_open(60'000, 10'000);
///     clock.validation_begins(step, samples);      // for each validation
///     const std::string line = clock.validated(step, samples, loss, metrics);
///     clock.end(RunStatus::kReached, step_seconds);
///
/// The clock is the wall's, so it goes on while a run that will be resumed does not run. A resumed
/// run continues the files of its first part.
///
/// Threads  one; of rank 0's process.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "strata/clock/energy.h"
#include "strata/clock/mllog.h"
#include "strata/clock/quality_target.h"
#include "strata/clock/run_file.h"

namespace strata {

struct ClockOptions {
  std::string mllog = {}, run_file = {};  ///< files; empty: none
  std::string benchmark = "strata";       ///< submission_benchmark
  std::optional<QualityTarget> target = {};
  bool resumes = false;
};

/// Facts about a run for its files.
struct RunFacts {
  std::string title = {}, recipe = {}, version = {}, machine = {};
  std::string precision = "fp32";
  int ranks = 1, stages = 1, tensor_ranks = 1;
  std::int64_t seed = 0, mini_batch = 1, micro_batch = 1;
};

class RunClock {
 public:
  explicit RunClock(ClockOptions options);

  void start(const RunFacts& facts);
  void data_are_open(std::int64_t training_samples, std::int64_t validation_samples);
  void validation_begins(std::int64_t step, std::int64_t samples);
  /// Returns what to tell people: the target, and when it will be reached; empty without a target.
  std::string validated(const RunValidation& validation);
  /// Without this the files say that the run goes on, or was killed.
  void end(RunStatus status, double median_step_seconds);

  double seconds() const;  ///< since the start
  const RunFile& run() const { return run_; }

 private:
  void log_facts(const RunFacts& facts);
  void begin_block(std::int64_t step, std::int64_t samples);
  void end_block();
  void write_run();

  ClockOptions options_;
  std::optional<Mllog> log_;
  EnergyCounter energy_;
  RunFile run_;
  double joules_before_ = 0;  // of the run's earlier parts
  std::int64_t blocks_ = 0;   // validations so far
  bool in_block_ = false;
};

}  // namespace strata
