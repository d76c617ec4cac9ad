/// Compares the times of two sets of runs.
///
/// The mean of a set of five or more leaves out its fastest and its slowest run (MLCommons'
/// "olympic" mean). Whether the sets differ says Welch's t-test over all of their runs.
///
/// Source  mlcommons/training_policies, "Benchmark Results"; Welch 1947.
/// Errors  UserError `[clock.compare]`: a set with a run that has not ended, or without one that
///         reached its target; runs of different targets.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "strata/clock/run_file.h"

namespace strata {

/// Of a set, in seconds.
struct RunTimes {
  std::size_t runs = 0, missed = 0;  ///< missed: took all steps without the target; no time
  double mean = 0;                   ///< olympic from five runs on
  double fastest = 0, slowest = 0, deviation = 0;
  std::optional<double> joules;  ///< mean of a run; none: a run has no counters
};

struct RunComparison {
  RunTimes first, second;
  double ratio = 1;         ///< second's mean / first's: above 1, the first set is faster
  std::optional<double> p;  ///< of no difference, two-sided; none: a set has one run only
};

/// The olympic mean of times, which are not empty.
double olympic_mean(std::vector<double> times);

/// Two-sided p of Welch's t-test, for sets of two or more times.
double welch_p(const std::vector<double>& first, const std::vector<double>& second);

RunComparison compare_runs(const std::vector<RunFile>& first, const std::vector<RunFile>& second);

/// A table and a sentence, such as "A is 1.24 times as fast as B (p 0.003)".
std::string text_of(const RunComparison& comparison, const std::string& first_name,
                    const std::string& second_name);

}  // namespace strata
