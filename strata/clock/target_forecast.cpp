#include "strata/clock/target_forecast.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "strata/base/units.h"

namespace strata {
namespace {

// The 0.9 quantiles of Student's distribution with 1, 2, ... degrees of freedom; then the normal's.
constexpr double kOfFourInFive[] = {3.078, 1.886, 1.638, 1.533, 1.476,
                                    1.440, 1.415, 1.397, 1.383, 1.372};
constexpr double kNormalOfFourInFive = 1.282;
constexpr double kNever = 3e9;  // seconds: a century
constexpr double kWidestRange = 100;

double of_four_in_five(std::size_t freedom) {
  return freedom <= std::size(kOfFourInFive) ? kOfFourInFive[freedom - 1] : kNormalOfFourInFive;
}

constexpr std::size_t kFewest = 3;
constexpr double kLeastSeconds = 1e-3;  // the resolution of the clock

}  // namespace

std::optional<TargetForecast> forecast_target(const std::vector<TimedQuality>& validations,
                                              double target) {
  if (validations.size() < kFewest) return std::nullopt;
  const std::size_t used = std::max(kFewest, (validations.size() + 1) / 2);
  double mean_x = 0, mean_y = 0;
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = validations.size() - used; i < validations.size(); ++i)
    points.emplace_back(std::log(std::max(validations[i].seconds, kLeastSeconds)),
                        validations[i].value);
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
  const double deviation = std::sqrt(squares / (count - 2));
  // Of the crossing, to first order in the deviations.
  const double crossing = mean_x + (target - mean_y) / slope, off = crossing - mean_x;
  const double reach = of_four_in_five(points.size() - 2) * deviation / std::abs(slope) *
                       std::sqrt(1 / count + off * off / sxx);
  const double last_x = points.back().first;
  const auto seconds_at = [&](double x) {
    const double seconds = std::exp(std::max(x, last_x));
    return seconds < kNever ? seconds : std::numeric_limits<double>::infinity();
  };
  return TargetForecast{.seconds = seconds_at(crossing),
                        .earliest = seconds_at(crossing - reach),
                        .latest = seconds_at(crossing + reach)};
}

std::string text_of(const TargetForecast& forecast, double now) {
  if (!(forecast.latest < kWidestRange * forecast.earliest)) return "too early to say when";
  const auto left = [&](double seconds) { return format_seconds(std::max(0.0, seconds - now)); };
  return "in " + left(forecast.seconds) + " (" + left(forecast.earliest) + " to " +
         left(forecast.latest) + ")";
}

}  // namespace strata
