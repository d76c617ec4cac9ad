/// The clock of a run: from before the data are touched to the validation that reaches the target.
/// It writes MLCommons' log and the run's file, and predicts when the target is reached.
///
///     RunClock clock({.mllog = "out.log"});        // at the program's start
///     clock.start();                               // before data are opened
///     clock.open_files(facts);                     // when nothing refuses the run any more
///     clock.validation_begins(step, samples);      // for each validation
///     const std::string line = clock.validated({.step = step, ...});
///     clock.end(RunStatus::kReached, step_seconds);
///
/// The clock is the wall's, so it goes on while a run that will be resumed does not run. A resumed
/// run continues the files of its first part; another run begins them anew.
///
/// Threads  one; of rank 0's process.
/// Errors   UserError: files of another run, or that are no such files. SystemError: disk full.
#pragma once

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
  std::int64_t training_samples = 0, validation_samples = 0;
  std::int64_t steps_done = 0;  ///< of the checkpoint that the run resumes from; 0: none
};

class RunClock {
 public:
  explicit RunClock(ClockOptions options);

  void start();
  void open_files(const RunFacts& facts);
  void validation_begins(std::int64_t step, std::int64_t samples);
  /// Returns what to tell people: the target, and when it will be reached; empty without a target.
  std::string validated(const RunValidation& validation);
  /// Without this the files say that the run goes on, or was killed.
  void end(RunStatus status, double median_step_seconds);

  double seconds() const;  ///< since the start

 private:
  void open_log(const RunFacts& facts);
  std::string target_text() const;
  void write_run();

  ClockOptions options_;
  MllogPast past_;
  std::optional<Mllog> log_;
  EnergyCounter energy_;
  RunFile run_;
  double joules_before_ = 0;  // of the run's earlier parts
  std::int64_t init_milliseconds_ = 0;
  std::int64_t block_milliseconds_ = 0;  // when the block after the last validation began
  std::int64_t blocks_ = 0;              // in the log
};

}  // namespace strata
