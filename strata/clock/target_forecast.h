/// Predicts when a run reaches its target, from its validations so far.
///
/// The metric is fitted as a straight line over the logarithm of the time, by least squares over
/// the later half of the validations: learning curves flatten in about that way. The range has the
/// crossing of the target in about four of five cases, if the deviations from the line are normal
/// and independent.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace strata {

struct TimedQuality {
  double seconds = 0;  ///< since the run's start
  double value = 0;
};

struct TargetForecast {
  double seconds = 0;               ///< when, since the run's start
  double earliest = 0, latest = 0;  ///< infinite: never
};

/// None: fewer than three validations, or the metric moves away from the target.
/// Values are finite.
std::optional<TargetForecast> forecast_target(const std::vector<TimedQuality>& validations,
                                              double target);

/// "in 41 min (29 to 63 min)", or "too early to say when" of a range that says nothing; `now`:
/// seconds since the run's start.
std::string text_of(const TargetForecast& forecast, double now);

}  // namespace strata
