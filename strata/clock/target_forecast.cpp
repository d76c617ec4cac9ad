#include "strata/clock/target_forecast.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/base/units.h"

namespace strata {
namespace {

constexpr double kOfFourInFive = 1.2816;  // standard deviations of a normal distribution
constexpr std::size_t kFewest = 3;

}  // namespace

std::optional<TargetForecast> forecast_target(const std::vector<TimedQuality>& validations,
                                              double target) {
  if (validations.size() < kFewest) return std::nullopt;
  const std::size_t used = std::max(kFewest, (validations.size() + 1) / 2);
  double mean_x = 0, mean_y = 0;
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = validations.size() - used; i < validations.size(); ++i)
    points.emplace_back(std::log(validations[i].seconds), validations[i].value);
  const auto count = static_cast<double>(points.size());
  for (const auto& [x, y] : points) {
    mean_x += x / count;
    mean_y += y / count;
  }
  double sxx = 0, sxy = 0, squares = 0;
  for (const auto& [x, y] : points) {
    sxx += (x - mean_x) * (x - mean_x);
    sxy += (x - mean_x) * (y - mean_y);
  }
  const double slope = sxy / sxx, last = points.back().second;
  if (!(sxx > 0) || slope == 0 || (target - last) / slope <= 0) return std::nullopt;
  for (const auto& [x, y] : points) {
    const double miss = y - mean_y - slope * (x - mean_x);
    squares += miss * miss;
  }
  const double deviation = std::sqrt(squares / std::max(1.0, count - 2));
  const double slope_deviation = deviation / std::sqrt(sxx);
  const auto crossing = [&](double with_slope, double offset) {
    const double x = mean_x + (target - mean_y - offset) / with_slope;
    return with_slope * slope > 0 ? std::exp(std::max(x, points.back().first))
                                  : std::numeric_limits<double>::infinity();
  };
  // Steeper and already better, flatter and worse.
  const double sign = slope > 0 ? 1 : -1;
  const double turn = sign * kOfFourInFive * slope_deviation;
  const double shift = sign * kOfFourInFive * deviation / std::sqrt(count);
  return TargetForecast{.seconds = crossing(slope, 0),
                        .earliest = crossing(slope + turn, shift),
                        .latest = crossing(slope - turn, -shift)};
}

std::string text_of(const TargetForecast& forecast, double now) {
  const auto left = [&](double seconds) { return format_seconds(std::max(0.0, seconds - now)); };
  return "in " + left(forecast.seconds) + " (" + left(forecast.earliest) + " to " +
         (std::isfinite(forecast.latest) ? left(forecast.latest) : "never") + ")";
}

}  // namespace strata
