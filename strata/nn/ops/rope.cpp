#include "strata/nn/ops/rope.h"

#include <ATen/ops/empty.h>

#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>

#include "strata/device/account.h"
#include "strata/device/device.h"
#include "strata/device/parallel.h"

namespace strata {
namespace {

// A pair that turns fewer than `low` times in the original context is slowed by the full factor,
// one that turns more than `high` times is unchanged.
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

namespace {

at::Tensor host_rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                           std::int64_t first) {
  const std::vector<float> frequencies = rope_frequencies(options, width);
  const std::int64_t half = width / 2;
  at::Tensor table = at::empty({length, width}, host_options(at::kFloat));
  float* to = table.data_ptr<float>();
  parallel_rows(length, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) {
      for (std::int64_t i = 0; i < half; ++i) {
        // In fp32, like the training of the published weights.
        const float angle = static_cast<float>(first + position) * frequencies[i];
        to[position * width + i] = std::cos(angle);
        to[position * width + half + i] = std::sin(angle);
      }
    }
  });
  return table;
}

// Tables of the positions from 0 on, which live as long as the process: a recorded step reads the
// table that it was recorded with. Their sizes double, so that a growing text does not need one per
// token.
class DeviceRopeTables {
 public:
  at::Tensor find(const RopeOptions& options, std::int64_t width, std::int64_t positions,
                  c10::Device device) {
    const std::scoped_lock lock(mutex_);
    for (const Entry& entry : entries_)
      if (entry.options == options && entry.table.size(1) == width &&
          entry.table.device() == device && entry.table.size(0) >= positions)
        return entry.table;
    const UnchargedScope uncharged;  // all ranks of the process read it, and it outlives them
    const auto length =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::size_t>(positions)));
    entries_.push_back({options, host_rope_table(options, width, length, 0).to(device)});
    return entries_.back().table;
  }

 private:
  struct Entry {
    RopeOptions options;
    at::Tensor table;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace

at::Tensor rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                      std::int64_t first, c10::Device device) {
  if (device.is_cpu()) return host_rope_table(options, width, length, first);
  static auto* const tables = new DeviceRopeTables;  // never freed: devices may be gone at exit
  return tables->find(options, width, first + length, device).narrow(0, first, length);
}

}  // namespace strata
