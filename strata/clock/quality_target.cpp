#include "strata/clock/quality_target.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr ErrorSource kTargetErrors{"clock.target"};
constexpr const char* kLoss = "val_loss";

}  // namespace

QualityTarget QualityTarget::parse(const std::string& text, const std::vector<std::string>& metrics,
                                   const std::string& where) {
  const auto refuse = [&]() -> UserError {
    return kTargetErrors.user(where, "train.target: it is no target",
                              "NAME<=NUMBER or NAME>=NUMBER", quote(text),
                              "write for example val_loss<=1.5, or accuracy>=0.9");
  };
  const std::size_t sign = text.find_first_of("<>");
  if (sign == std::string::npos || sign == 0 || text.size() < sign + 3 || text[sign + 1] != '=')
    throw refuse();
  const std::string number = text.substr(sign + 2);
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  if (*end != '\0' || !std::isfinite(value)) throw refuse();
  std::string name = text.substr(0, sign);
  std::vector<std::string> names = metrics;
  names.insert(names.begin(), kLoss);
  if (std::ranges::find(names, name) == names.end()) {
    std::string all;
    for (const std::string& known : names) all += (all.empty() ? "" : ", ") + known;
    throw kTargetErrors.user(where, "train.target: validations of this model do not compute it",
                             "one of " + all, quote(name), "name one that they compute");
  }
  return {.metric = std::move(name), .at_most = text[sign] == '<', .value = value};
}

double QualityTarget::value_in(double loss, const NamedMetrics& metrics) const {
  if (metric == kLoss) return loss;
  return metric_named(metrics, metric).value_or(std::numeric_limits<double>::quiet_NaN());
}

std::string QualityTarget::text() const {
  return metric + (at_most ? "<=" : ">=") + format_double_exactly(value);
}

}  // namespace strata
