#include "strata/claim/claim.h"

#include <algorithm>
#include <cmath>

#include "strata/base/enum_names.h"

namespace strata {
namespace {

// Sums of the same numbers in another order differ in the last bits.
constexpr double kTinyShare = 1e-9;

}  // namespace

Tolerance rounding(int decimals) { return {.absolute = 0.5 * std::pow(10.0, -decimals)}; }
Tolerance within(double share) { return {.relative = share}; }

const char* name_of(Verdict verdict) {
  using enum Verdict;
  static constexpr EnumNames<Verdict> kNames{{kReproduced, "reproduced"},
                                             {kConsistent, "consistent"},
                                             {kExplained, "explained"},
                                             {kNotExplained, "not explained"},
                                             {kMissed, "missed"}};
  return kNames[verdict];
}

Verdict verdict_of(const ClaimRow& row) {
  const double published = std::abs(row.published);
  const double difference = std::abs(row.reproduced - row.published);
  if (!std::isfinite(difference)) return Verdict::kMissed;
  const double allowed = std::max(row.tolerance.absolute, row.tolerance.relative * published);
  if (difference <= allowed + kTinyShare * published)
    return row.from_published ? Verdict::kConsistent : Verdict::kReproduced;
  if (!row.explanation.text.empty() && difference <= row.explanation.up_to * published)
    return row.explanation.known ? Verdict::kExplained : Verdict::kNotExplained;
  return Verdict::kMissed;
}

double difference_of(const ClaimRow& row) {
  const double difference = row.reproduced - row.published;
  return row.published == 0 ? difference : difference / row.published;
}

VerdictCounts& VerdictCounts::operator+=(const VerdictCounts& other) {
  reproduced += other.reproduced;
  consistent += other.consistent;
  explained += other.explained;
  not_explained += other.not_explained;
  missed += other.missed;
  return *this;
}

VerdictCounts verdicts_of(const Claim& claim) {
  VerdictCounts counts;
  for (const ClaimRow& row : claim.rows) {
    const Verdict verdict = verdict_of(row);
    counts.reproduced += verdict == Verdict::kReproduced;
    counts.consistent += verdict == Verdict::kConsistent;
    counts.explained += verdict == Verdict::kExplained;
    counts.not_explained += verdict == Verdict::kNotExplained;
    counts.missed += verdict == Verdict::kMissed;
  }
  return counts;
}

std::string words_of(const VerdictCounts& counts) {
  return std::to_string(counts.reproduced) + (counts.reproduced == 1 ? " row" : " rows") +
         " reproduced, " + std::to_string(counts.consistent) + " consistent, " +
         std::to_string(counts.explained) + " explained, " + std::to_string(counts.not_explained) +
         " not explained, " + std::to_string(counts.missed) + " missed";
}

int exit_status(const std::vector<Claim>& claims) {
  const auto misses = [](const Claim& claim) { return verdicts_of(claim).missed > 0; };
  return std::ranges::any_of(claims, misses) ? 1 : 0;
}

}  // namespace strata
