#include "strata/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/device/device.h"

namespace strata {
namespace {

MiniBatch read_windows(const Windows& windows, std::int64_t samples,
                       const std::function<std::int64_t(std::int64_t)>& window_of) {
  const std::int64_t context = windows.context;
  at::Tensor tokens = at::empty({samples, context}, host_options(at::kLong));
  at::Tensor targets = at::empty({samples, context}, host_options(at::kLong));
  const std::span all_tokens(tokens.mutable_data_ptr<std::int64_t>(), tokens.numel());
  const std::span all_targets(targets.mutable_data_ptr<std::int64_t>(), targets.numel());
  for (std::int64_t i = 0; i < samples; ++i) {
    windows.read(window_of(i), all_tokens.subspan(i * context, context),
                 all_targets.subspan(i * context, context));
  }
  const std::int64_t ignored = std::ranges::count(all_targets, kIgnoredTarget);
  return {
      .inputs = {tokens, targets}, .samples = samples, .valid_tokens = targets.numel() - ignored};
}

}  // namespace

TrainingLoader::TrainingLoader(Windows windows, bool shuffle, std::uint64_t seed)
    : windows_(std::move(windows)), sampler_(windows_.count, shuffle, seed) {}

MiniBatch TrainingLoader::at(std::int64_t samples_seen, std::int64_t mini_batch) const {
  STRATA_CHECK(samples_seen >= 0 && mini_batch > 0, "data.training_batch");
  return read_windows(windows_, mini_batch,
                      [&](std::int64_t i) { return sampler_.window(samples_seen + i); });
}

double TrainingLoader::epochs(std::int64_t samples_seen) const {
  return static_cast<double>(samples_seen) / static_cast<double>(windows_.count);
}

MiniBatch ValidationLoader::at(std::int64_t first, std::int64_t mini_batch) const {
  STRATA_CHECK(first >= 0 && mini_batch > 0, "data.validation_batch");
  const std::int64_t samples = std::clamp<std::int64_t>(windows_.count - first, 0, mini_batch);
  return read_windows(windows_, samples, [&](std::int64_t i) { return first + i; });
}

namespace {

constexpr int kRounds = 8;  // four make a network random; small domains need more
constexpr std::uint64_t kPurpose = 0x73616D706C6572;  // "sampler": not the keys of dropout

}  // namespace

Sampler::Sampler(std::int64_t count, bool shuffle, std::uint64_t seed)
    : count_(count), shuffle_(shuffle), seed_(mix_key(seed, kPurpose)) {
  STRATA_CHECK(count > 0, "data.sampler");
  const int bits = std::bit_width(static_cast<std::uint64_t>(count - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Sampler::window(std::int64_t sample) const {
  STRATA_CHECK(sample >= 0, "data.sampler");
  const auto index = static_cast<std::uint64_t>(sample % count_);
  if (!shuffle_) return static_cast<std::int64_t>(index);
  const std::uint64_t key = mix_key(seed_, static_cast<std::uint64_t>(epoch(sample)));
  std::uint64_t place = permute(index, key);
  while (place >= static_cast<std::uint64_t>(count_)) place = permute(place, key);
  return static_cast<std::int64_t>(place);
}

std::uint64_t Sampler::permute(std::uint64_t index, std::uint64_t key) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = index >> half_bits_, right = index & mask;
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t next =
        left ^ (mix_key(key + static_cast<std::uint64_t>(round), right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace strata
