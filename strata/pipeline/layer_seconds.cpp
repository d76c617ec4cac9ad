// Uses the lower quartile instead of the mean, because disturbances only add time.
#include "strata/pipeline/layer_seconds.h"

#include <algorithm>

namespace strata {

Timing timing_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const std::size_t last = seconds.size() - 1;
  const double lower = seconds[last / 4], upper = seconds[last - last / 4];
  return {.seconds = lower,
          .spread = lower > 0 ? (upper - lower) / lower : 0,
          .samples = static_cast<std::int64_t>(seconds.size())};
}

LayerSeconds mean_of(const std::vector<LayerSeconds>& ranks) {
  LayerSeconds mean;
  for (int part = 0; part < kNumLayerParts; ++part) {
    Timing& sum = mean.parts[part];
    int measured = 0;
    for (const LayerSeconds& rank : ranks) {
      const Timing& timing = rank.parts[part];
      if (timing.samples == 0) continue;
      ++measured;
      sum.seconds += timing.seconds;
      sum.spread = std::max(sum.spread, timing.spread);
      sum.samples += timing.samples;
    }
    if (measured > 0) sum.seconds /= measured;
  }
  return mean;
}

void LayerTimes::add(int layer, LayerPart part, double seconds) {
  Samples& samples = samples_[{layer, part}];
  if (samples.seconds.size() < kKept) {
    samples.seconds.push_back(seconds);
    return;
  }
  samples.seconds[samples.next] = seconds;
  samples.next = (samples.next + 1) % kKept;
}

void LayerTimes::end_step() {
  for (const auto& [layer, seconds] : update_) add(layer, LayerPart::kUpdate, seconds);
  update_.clear();
}

LayerSeconds LayerTimes::of(int layer) const {
  LayerSeconds seconds;
  for (int part = 0; part < kNumLayerParts; ++part) {
    const auto found = samples_.find({layer, static_cast<LayerPart>(part)});
    if (found != samples_.end()) seconds.parts[part] = timing_of(found->second.seconds);
  }
  return seconds;
}

}  // namespace strata
