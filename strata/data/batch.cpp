#include "strata/data/batch.h"

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

}  // namespace

MiniBatch share(const MiniBatch& batch, int replica, int replicas) {
  const std::int64_t first = batch.samples * replica / replicas;
  const std::int64_t samples = batch.samples * (replica + 1) / replicas - first;
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

std::vector<MicroBatch> split(const MiniBatch& batch, std::int64_t micro_batch_samples,
                              std::int64_t count) {
  if (batch.samples < count) {
    throw UserError({.operation = "data.split",
                     .what = "a replica has fewer samples than micro-batches",
                     .expected = "at least " + std::to_string(count) + " samples for each replica",
                     .got = std::to_string(batch.samples),
                     .fix = "set train.mini_batch to a multiple of mesh.dp, or raise "
                            "train.micro_batch"});
  }
  std::vector<MicroBatch> micro_batches;
  for (std::int64_t i = 0, first = 0; i < count; ++i) {
    // What is left must do for the slices that are left.
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
