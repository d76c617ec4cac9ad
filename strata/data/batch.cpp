// All replicas make the same number of micro-batches, because they exchange messages for each. A
// part that is too small is padded with samples whose targets are ignored, or its last slice is
// halved; both leave loss and gradients unchanged.
#include "strata/data/batch.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {

namespace {

MicroBatch slice(const MiniBatch& batch, std::int64_t first, std::int64_t samples) {
  MicroBatch micro_batch{.first_sample = batch.first_sample + first};
  for (const at::Tensor& input : batch.inputs)
    micro_batch.inputs.push_back(input.narrow(0, first, samples));
  return micro_batch;
}

SampleRange part_of(std::int64_t samples, int replica, int replicas) {
  const std::int64_t first = samples * replica / replicas;
  return {first, samples * (replica + 1) / replicas - first};
}

// The number of samples with padding: no replica has fewer samples than micro-batches.
std::int64_t padded_samples(std::int64_t samples, int replicas, std::int64_t micro_batch_samples) {
  const std::int64_t count = count_micro_batches(samples, replicas, micro_batch_samples);
  return samples / replicas >= count ? samples : replicas * count;
}

}  // namespace

MiniBatch context_batch(const MiniBatch& batch, const ContextSplit& split, int rank) {
  if (split.ranks == 1) return batch;
  MiniBatch part = batch;
  for (at::Tensor& input : part.inputs) {
    std::vector<at::Tensor> tokens;
    for (const TokenRange& range : own_tokens(split, rank, input.size(1)))
      tokens.push_back(input.narrow(1, range.first, range.count));
    input = at::cat(tokens, 1);
  }
  return part;
}

SampleRange replica_samples(std::int64_t samples, int replica, int replicas,
                            std::int64_t micro_batch_samples) {
  const SampleRange part =
      part_of(padded_samples(samples, replicas, micro_batch_samples), replica, replicas);
  return {part.first, std::clamp<std::int64_t>(samples - part.first, 0, part.samples)};
}

MiniBatch replica_batch(const MiniBatch& batch, int replica, int replicas) {
  const auto [first, samples] = part_of(batch.samples, replica, replicas);
  MicroBatch part = slice(batch, first, samples);
  return {.inputs = std::move(part.inputs),
          .samples = samples,
          .valid_tokens = batch.valid_tokens,
          .first_sample = part.first_sample};
}

std::int64_t count_micro_batches(std::int64_t samples, int replicas,
                                 std::int64_t micro_batch_samples) {
  const std::int64_t largest = (samples + replicas - 1) / replicas;
  return (largest + micro_batch_samples - 1) / micro_batch_samples;
}

MiniBatch padded(const MiniBatch& batch, int replicas, std::int64_t micro_batch_samples) {
  const std::int64_t missing =
      padded_samples(batch.samples, replicas, micro_batch_samples) - batch.samples;
  if (missing == 0) return batch;
  MiniBatch full = batch;
  full.samples += missing;
  for (at::Tensor& input : full.inputs) {
    std::vector<std::int64_t> sizes = input.sizes().vec();
    sizes[0] = missing;
    at::Tensor copies = input.narrow(0, 0, 1).expand(sizes).clone();
    const bool is_target = &input == &full.inputs.back() && full.inputs.size() > 1;
    if (is_target) copies.fill_(batch.ignored_target);
    input = at::cat({input, copies});
  }
  return full;
}

std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples,
                              std::int64_t count) {
  STRATA_CHECK(batch.samples >= count, "data.split");
  std::vector<MicroBatch> micro_batches;
  for (std::int64_t i = 0, first = 0; i < count; ++i) {
    // The remaining slices share the remaining samples.
    const std::int64_t left = batch.samples - first, slices = count - i;
    std::int64_t samples = std::min(micro_batch_samples, left - (slices - 1));
    if (slices == 2 && left <= micro_batch_samples) samples = left / 2;
    micro_batches.push_back(slice(batch, first, samples));
    first += samples;
  }
  return micro_batches;
}

std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples) {
  STRATA_CHECK(micro_batch_samples > 0, "data.split");
  return split(batch, micro_batch_samples,
               count_micro_batches(batch.samples, 1, micro_batch_samples));
}

}  // namespace strata
