#include "strata/optim/zero_one_intervals.h"

#include <algorithm>

namespace strata {

std::int64_t count_refreshes(const OptimizerOptions& options, std::int64_t update) {
  update = std::min(update, options.freeze_step);
  std::int64_t count = 0, begin = 1;
  for (std::int64_t interval = 1;; interval *= 2) {
    const std::int64_t end = begin + options.refresh_doubling * interval;
    if (update < end) return count + (update - begin) / interval + 1;
    count += options.refresh_doubling;
    begin = end;
  }
}

bool refreshes_variances(const OptimizerOptions& options, std::int64_t update) {
  return count_refreshes(options, update) > count_refreshes(options, update - 1);
}

namespace {

// Steps from one synchronisation to the next.
std::int64_t interval_at(const OptimizerOptions& options, std::int64_t update) {
  if (update <= options.freeze_step) return 1;
  constexpr std::int64_t kMostDoublings = 30;
  const std::int64_t after = update - options.freeze_step - 1;
  const std::int64_t doublings = std::min(after / options.local_doubling, kMostDoublings);
  return std::min(options.local_most, std::int64_t{1} << doublings);
}

}  // namespace

// Where the interval doubles, it begins anew.
bool synchronises(const OptimizerOptions& options, std::int64_t update) {
  if (update <= options.freeze_step) return true;
  const std::int64_t position = (update - options.freeze_step - 1) % options.local_doubling + 1;
  return position % interval_at(options, update) == 0 || position == options.local_doubling;
}

double synchronisations_per_step(const OptimizerOptions& options, std::int64_t update) {
  const std::int64_t steps = options.local_doubling, interval = interval_at(options, update);
  const std::int64_t count = (steps + interval - 1) / interval;
  return static_cast<double>(count) / static_cast<double>(steps);
}

}  // namespace strata
