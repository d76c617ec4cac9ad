#include "strata/optim/outer_step.h"

#include "strata/base/errors.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

constexpr std::int64_t kLeastMoved = 1 << 15;  // elements; for fewer, a second thread does not pay
constexpr std::int64_t kMovedLine = 64;  // elements: threads never write to the same cache line

}  // namespace

void describe(OptionSet& set, const std::string& prefix, OuterOptions& options) {
  constexpr double kMostSteps = 1e12;
  constexpr double kLargest = 1e3;
  constexpr double kBelowOne = 0.999999;
  set.add(prefix + ".every", &options.every,
          {.help = "Steps that replicas (mesh.dp) take by their own gradients before an outer step "
                   "moves the weights that they share; 0: they add their gradients in every step.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".learning_rate", &options.learning_rate,
          {.help = "How far an outer step moves towards the mean of the replicas' weights; 1 with "
                   "momentum 0: to the mean, without states.",
           .minimum = 0,
           .maximum = kLargest});
  set.add(prefix + ".momentum", &options.momentum,
          {.help = "Fraction of the outer velocity that an outer step keeps.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = kBelowOne});
  set.add(prefix + ".nesterov", &options.nesterov,
          {.help = "Whether an outer step looks ahead along its velocity (Nesterov)."});
}

std::vector<std::string> outer_states(const OuterOptions& options) {
  if (!options.is_on() || options.averages()) return {};
  if (options.momentum == 0) return {kOuterWeight};
  return {kOuterWeight, kOuterMomentum};
}

void outer_step(const OuterOptions& options, const OuterRange& range) {
  const auto numel = static_cast<std::int64_t>(range.mean.size());
  const bool moves = options.momentum != 0;
  STRATA_CHECK_EQ(range.shared.size(), range.mean.size(), "optim.outer_step");
  STRATA_CHECK_EQ(range.momenta.size(), moves ? range.mean.size() : 0, "optim.outer_step");
  const auto rate = static_cast<float>(options.learning_rate);
  const auto kept = static_cast<float>(options.momentum);
  float *const mean = range.mean.data(), *const shared = range.shared.data(),
               *const momenta = range.momenta.data();
  parallel_ranges(
      numel, kLeastMoved,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          float direction = shared[i] - mean[i];
          if (moves) {
            const float gradient = direction;
            momenta[i] = kept * momenta[i] + gradient;
            direction = options.nesterov ? gradient + kept * momenta[i] : momenta[i];
          }
          shared[i] -= rate * direction;
          mean[i] = shared[i];
        }
      },
      kMovedLine);
}

}  // namespace strata
