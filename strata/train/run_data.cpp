#include "strata/train/run_data.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "strata/checkpoint/reader.h"
#include "strata/device/device.h"

namespace strata {
namespace {

at::Tensor tensor_of(const std::vector<float>& values, std::vector<std::int64_t> shape) {
  at::Tensor tensor = at::empty(shape, host_options(at::kFloat));
  std::ranges::copy(values, tensor.mutable_data_ptr<float>());
  return tensor;
}

}  // namespace

TextData::TextData(const Recipe& recipe)
    : corpus_(open_corpus(recipe.data, recipe.model.context, recipe.model.vocab)),
      loader_(corpus_.train, recipe.data.shuffle, static_cast<std::uint64_t>(recipe.train.seed)),
      mini_batch_(recipe.train.mini_batch) {}

MiniBatch TextData::at(std::int64_t samples_seen) const {
  return loader_.at(samples_seen, mini_batch_);
}

std::int64_t TextData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + mini_batch_;
}

LogData::LogData(const Recipe& recipe, const std::string& state)
    : data_(open_tabular(recipe.recommender->data, static_cast<std::uint64_t>(recipe.train.seed),
                         state)),
      mini_batch_(recipe.train.mini_batch) {}

MiniBatch LogData::at(std::int64_t samples_seen) const {
  return tensors_of(data_.train.at(samples_seen, mini_batch_));
}

std::int64_t LogData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + data_.train.size(samples_seen, mini_batch_);
}

MiniBatch LogData::tensors_of(const SampleBatch& samples) {
  const std::int64_t n = samples.samples;
  const auto numeric = static_cast<std::int64_t>(samples.numeric.size());
  return {.inputs = {tensor_of(samples.numeric, {n, n > 0 ? numeric / n : 0}),
                     at::empty({n, 0}, host_options(at::kFloat)), tensor_of(samples.labels, {n})},
          .samples = n,
          .valid_tokens = std::ranges::count_if(samples.labels, [](float y) { return y >= 0; })};
}

std::unique_ptr<RunData> open_data(const Recipe& recipe, const std::string& resume) {
  if (recipe.recommender) {
    const std::string state =
        resume.empty() ? "" : CheckpointReader::open(resume).text(kPreprocessingName);
    return std::make_unique<LogData>(recipe, state);
  }
  return std::make_unique<TextData>(recipe);
}

}  // namespace strata
