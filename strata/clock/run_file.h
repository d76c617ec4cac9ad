/// A finished or running run as one JSON file: what ran, on what, how long, how well.
///
/// `strata train --run-json FILE` writes it after every validation; `strata compare` reads it. A
/// run that resumes with the same file continues it: its clock has not stopped in between.
///
/// Source   format: docs/time-to-train.md
/// Errors   UserError `[clock.run_file]`: not such a file, or of a newer version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/report/metrics.h"

namespace strata {

struct RunValidation {
  std::int64_t step = 0, samples = 0;
  double seconds = 0;  ///< since the run's start
  double loss = 0;
  NamedMetrics metrics = {};
};

/// How a run stands.
enum class RunStatus : std::uint8_t {
  kRunning,   ///< or killed
  kStopped,   ///< by a signal; it can be resumed
  kComplete,  ///< without a target
  kReached,   ///< the target
  kMissed,    ///< the target, after the last step
};
const char* name_of(RunStatus status);  ///< "running", "stopped", ...

struct RunFile {
  std::string title = {}, recipe = {}, version = {}, machine = {};
  int ranks = 1;
  std::int64_t seed = 0;
  int restarts = 0;
  std::int64_t began_milliseconds = 0;  ///< since 1970
  std::string target = {};              ///< "val_loss<=1.5"; empty: none
  RunStatus status = RunStatus::kRunning;
  double seconds = 0;  ///< from the start to the end, or to the last validation
  double median_step_seconds = 0;
  std::optional<double> joules = {};  ///< of this machine's processors; none: no counters
  std::vector<RunValidation> validations = {};

  static RunFile read(const std::string& path);
  void write(const std::string& path) const;  ///< atomically
};

}  // namespace strata
