#include "strata/data/loader.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "strata/base/errors.h"
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
                      [&](std::int64_t i) { return sampler_.at(samples_seen + i); });
}

double TrainingLoader::epochs(std::int64_t samples_seen) const {
  return static_cast<double>(samples_seen) / static_cast<double>(windows_.count);
}

MiniBatch ValidationLoader::at(std::int64_t first, std::int64_t mini_batch) const {
  STRATA_CHECK(first >= 0 && mini_batch > 0, "data.validation_batch");
  const std::int64_t samples = std::clamp<std::int64_t>(windows_.count - first, 0, mini_batch);
  return read_windows(windows_, samples, [&](std::int64_t i) { return first + i; });
}

}  // namespace strata
