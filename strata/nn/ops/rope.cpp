// The angles are made on the host, which all devices then agree with.
#include "strata/nn/ops/rope.h"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>

#include "strata/device/device.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

// A pair that turns fewer than `low` times in the original context is slowed by the whole factor,
// one that turns more than `high` times not at all.
double stretched(double frequency, const RopeOptions& options) {
  if (options.factor == 1) return frequency;
  const double low = options.low_frequency_factor, high = options.high_frequency_factor;
  const double turns =
      static_cast<double>(options.original_context) * frequency / (2 * std::numbers::pi);
  if (turns < low) return frequency / options.factor;
  if (turns > high) return frequency;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * frequency / options.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeOptions& options, std::int64_t width) {
  std::vector<float> frequencies(width / 2);
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(width);
    frequencies[i] = static_cast<float>(stretched(std::pow(options.theta, -exponent), options));
  }
  return frequencies;
}

at::Tensor rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                      std::int64_t first, c10::Device device) {
  const std::vector<float> frequencies = rope_frequencies(options, width);
  const std::int64_t half = width / 2;
  at::Tensor table = at::empty({length, width}, host_options(at::kFloat));
  float* to = table.data_ptr<float>();
  parallel_rows(length, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) {
      for (std::int64_t i = 0; i < half; ++i) {
        // In fp32, as the published weights met it in training.
        const float angle = static_cast<float>(first + position) * frequencies[i];
        to[position * width + i] = std::cos(angle);
        to[position * width + half + i] = std::sin(angle);
      }
    }
  });
  return table.to(device);
}

}  // namespace strata
