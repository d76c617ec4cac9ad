#include "strata/train/run_data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strata/checkpoint/reader.h"
#include "strata/device/device.h"
#include "strata/train/recommender_limits.h"

namespace strata {
namespace {

constexpr const char* kPreprocessingName = "preprocessing.json";

// Rows [first, ...) of a tensor of so many rows; zeros elsewhere.
at::Tensor rows_of(const std::vector<float>& values, std::int64_t first,
                   std::vector<std::int64_t> shape) {
  at::Tensor tensor = at::zeros(shape, host_options(at::kFloat));
  const std::int64_t width = shape.size() > 1 ? shape[1] : 1;
  std::ranges::copy(values, tensor.mutable_data_ptr<float>() + first * width);
  return tensor;
}

}  // namespace

TextData::TextData(const Recipe& recipe)
    : corpus_(open_corpus(recipe.data, recipe.model.context, recipe.model.vocab)),
      loader_(corpus_.train, recipe.data.shuffle, static_cast<std::uint64_t>(recipe.train.seed)),
      options_(recipe.train) {}

MiniBatch TextData::at(std::int64_t samples_seen) const {
  return loader_.at(samples_seen, options_.mini_batch);
}

std::int64_t TextData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + options_.mini_batch;
}

std::vector<MiniBatch> TextData::validation() const {
  std::vector<MiniBatch> batches;
  if (!evaluates()) return batches;
  const ValidationLoader loader(corpus_.validation);
  const std::int64_t samples = options_.validation_samples == 0
                                   ? loader.samples()
                                   : std::min(options_.validation_samples, loader.samples());
  for (std::int64_t first = 0; first < samples; first += options_.mini_batch)
    batches.push_back(loader.at(first, std::min(options_.mini_batch, samples - first)));
  return batches;
}

LogData::LogData(const Recipe& recipe, const std::string& state)
    : data_(open_tabular(recipe.recommender->data, static_cast<std::uint64_t>(recipe.train.seed),
                         state)),
      options_(recipe.train),
      epochs_(recipe.recommender->epochs) {
  require_steps(recipe, data_.train.samples(), [](const std::string& field) { return field; });
}

MiniBatch LogData::at(std::int64_t samples_seen) const {
  const SampleBatch batch = data_.train.at(samples_seen, options_.mini_batch);
  return tensors_of(batch, 0, batch.samples);
}

std::int64_t LogData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + data_.train.size(samples_seen, options_.mini_batch);
}

std::int64_t LogData::steps() const {
  return epochs_ == 0 ? options_.steps : data_.train.steps(epochs_, options_.mini_batch);
}

std::map<std::string, std::string> LogData::texts() const {
  return {{kPreprocessingName, data_.preprocessing->save_state()}};
}

MiniBatch LogData::tensors_of(const SampleBatch& part, std::int64_t first,
                              std::int64_t samples) const {
  const auto width = static_cast<std::int64_t>(data_.preprocessing->options().numeric.size());
  return {.inputs = {rows_of(part.numeric, first, {samples, width}),
                     at::empty({samples, 0}, host_options(at::kFloat)),
                     rows_of(part.labels, first, {samples})},
          .samples = samples,
          .valid_tokens = samples};  // a log's labels are 0 and 1
}

std::string saved_preprocessing(const std::string& checkpoint) {
  return CheckpointReader::open(checkpoint).text(kPreprocessingName);
}

std::unique_ptr<RunData> open_data(const Recipe& recipe, const std::string& resume) {
  if (recipe.recommender) {
    const std::string state = resume.empty() ? "" : saved_preprocessing(resume);
    return std::make_unique<LogData>(recipe, state);
  }
  return std::make_unique<TextData>(recipe);
}

}  // namespace strata
