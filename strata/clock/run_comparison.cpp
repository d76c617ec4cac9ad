#include "strata/clock/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "strata/base/error_source.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr ErrorSource kCompareErrors{"clock.compare"};
constexpr std::size_t kOlympicRuns = 5;
constexpr double kSignificant = 0.05;

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// With n - 1.
double variance_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return values.size() < 2 ? 0 : squares / static_cast<double>(values.size() - 1);
}

// The probability of |T| > t for Student's distribution. With x = sqrt(f) tan(angle) its density is
// c cos(angle)^(f - 1), which Simpson's rule integrates.
double two_sided_p(double t, double freedom) {
  constexpr int kPanels = 4000;
  const double from = std::atan(std::abs(t) / std::sqrt(freedom)), to = std::numbers::pi / 2;
  const double step = (to - from) / kPanels;
  double sum = 0;
  for (int i = 0; i <= kPanels; ++i) {
    const double weight = i == 0 || i == kPanels ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * std::pow(std::max(0.0, std::cos(from + i * step)), freedom - 1);
  }
  const double scale = std::exp(std::lgamma((freedom + 1) / 2) - std::lgamma(freedom / 2)) /
                       std::sqrt(std::numbers::pi);
  return std::min(1.0, 2 * scale * sum * step / 3);
}

bool has_ended(const RunFile& run) {
  return run.status == RunStatus::kReached || run.status == RunStatus::kComplete;
}

std::vector<double> times_of(const std::vector<RunFile>& runs) {
  std::vector<double> times;
  for (const RunFile& run : runs)
    if (has_ended(run)) times.push_back(run.seconds);
  return times;
}

RunTimes summary_of(const std::vector<RunFile>& runs) {
  const std::vector<double> times = times_of(runs);
  RunTimes summary{.runs = times.size(), .missed = runs.size() - times.size(), .joules = 0};
  summary.mean = olympic_mean(times);
  summary.fastest = *std::ranges::min_element(times);
  summary.slowest = *std::ranges::max_element(times);
  summary.deviation = std::sqrt(variance_of(times));
  for (const RunFile& run : runs) {
    if (!has_ended(run)) continue;
    if (!run.joules || !summary.joules)
      summary.joules.reset();
    else
      *summary.joules += *run.joules / static_cast<double>(times.size());
  }
  return summary;
}

void require_comparable(const std::vector<RunFile>& first, const std::vector<RunFile>& second) {
  for (const std::vector<RunFile>* runs : {&first, &second}) {
    for (const RunFile& run : *runs)
      if (run.status == RunStatus::kRunning || run.status == RunStatus::kStopped)
        throw kCompareErrors.user(runs == &first ? "the first set" : "the second set",
                                  "one of its runs has not ended",
                                  "runs that took all steps or reached their target",
                                  "seed " + std::to_string(run.seed) + ", " + name_of(run.status),
                                  "wait for it, resume it, or take its file away");
    if (times_of(*runs).empty())
      throw kCompareErrors.user(runs == &first ? "the first set" : "the second set",
                                "none of its runs has ended with its target",
                                "one or more that have", std::to_string(runs->size()) + " others",
                                "train them to their end");
    for (const RunFile& run : *runs)
      if (run.target != first.front().target)
        throw kCompareErrors.user("the runs", "they have different targets",
                                  first.front().target.empty() ? "no target" : first.front().target,
                                  run.target.empty() ? "no target" : run.target,
                                  "compare runs of one target");
  }
}

}  // namespace

double olympic_mean(std::vector<double> times) {
  std::ranges::sort(times);
  if (times.size() >= kOlympicRuns) times = {times.begin() + 1, times.end() - 1};
  return mean_of(times);
}

double welch_p(const std::vector<double>& first, const std::vector<double>& second) {
  const auto n1 = static_cast<double>(first.size()), n2 = static_cast<double>(second.size());
  const double v1 = variance_of(first) / n1, v2 = variance_of(second) / n2;
  const double difference = mean_of(first) - mean_of(second);
  if (v1 + v2 == 0) return difference == 0 ? 1 : 0;
  const double freedom = (v1 + v2) * (v1 + v2) / (v1 * v1 / (n1 - 1) + v2 * v2 / (n2 - 1));
  return two_sided_p(difference / std::sqrt(v1 + v2), freedom);
}

RunComparison compare_runs(const std::vector<RunFile>& first, const std::vector<RunFile>& second) {
  require_comparable(first, second);
  RunComparison comparison{.first = summary_of(first), .second = summary_of(second), .p = {}};
  comparison.ratio = comparison.second.mean / comparison.first.mean;
  const std::vector<double> a = times_of(first), b = times_of(second);
  if (a.size() >= 2 && b.size() >= 2) comparison.p = welch_p(a, b);
  return comparison;
}

std::string text_of(const RunComparison& comparison, const std::string& first_name,
                    const std::string& second_name) {
  TextTable table("lrrrrrr");
  table.add_row({"set", "runs", "missed", "mean", "fastest", "slowest", "energy"});
  for (const auto& [name, times] :
       {std::pair(&first_name, &comparison.first), std::pair(&second_name, &comparison.second)})
    table.add_row({*name, std::to_string(times->runs), std::to_string(times->missed),
                   format_seconds(times->mean), format_seconds(times->fastest),
                   format_seconds(times->slowest),
                   times->joules ? format_double(*times->joules, 0) + " J" : "-"});
  const bool faster = comparison.ratio >= 1;
  std::string text = table.text() + "\n" + (faster ? first_name : second_name) + " is " +
                     format_double(faster ? comparison.ratio : 1 / comparison.ratio, 2) +
                     " times as fast as " + (faster ? second_name : first_name);
  if (!comparison.p) return text + "; one run says nothing of how much times vary\n";
  const bool differs = *comparison.p < kSignificant;
  return text + " (p " + format_double(*comparison.p, 4) + (differs ? "" : ": may be chance") +
         ")\n";
}

}  // namespace strata
