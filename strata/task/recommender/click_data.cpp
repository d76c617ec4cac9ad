#include "strata/task/recommender/click_data.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "strata/checkpoint/reader.h"
#include "strata/device/device.h"
#include "strata/task/recommender/recommender_limits.h"

namespace strata {
namespace {

constexpr const char* kPreprocessingName = "preprocessing.json";

// A tensor of so many rows: `values` from row `first` on, zeros elsewhere.
at::Tensor rows_of(const std::vector<float>& values, std::int64_t first,
                   std::vector<std::int64_t> shape) {
  at::Tensor tensor = at::zeros(shape, host_options(at::kFloat));
  const std::int64_t width = shape.size() > 1 ? shape[1] : 1;
  std::ranges::copy(values, tensor.mutable_data_ptr<float>() + first * width);
  return tensor;
}

}  // namespace

ClickData::ClickData(const RecommenderFields& fields, const TrainOptions& options,
                     const std::string& state)
    : data_(open_tabular(fields.data, static_cast<std::uint64_t>(options.seed), state)),
      options_(options),
      epochs_(fields.epochs) {
  require_steps(fields, options_, data_.train.samples(),
                [](const std::string& field) { return field; });
}

MiniBatch ClickData::at(std::int64_t samples_seen) const {
  const SampleBatch batch = data_.train.at(samples_seen, options_.mini_batch);
  return tensors_of(batch, 0, batch.samples);
}

std::int64_t ClickData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + data_.train.size(samples_seen, options_.mini_batch);
}

std::int64_t ClickData::steps() const {
  return epochs_ == 0 ? options_.steps : data_.train.steps(epochs_, options_.mini_batch);
}

std::map<std::string, std::string> ClickData::texts() const {
  return {{kPreprocessingName, data_.preprocessing->save_state()}};
}

MiniBatch ClickData::tensors_of(const SampleBatch& part, std::int64_t first,
                                std::int64_t samples) const {
  const auto width = static_cast<std::int64_t>(data_.preprocessing->options().numeric.size());
  return {.inputs = {rows_of(part.numeric, first, {samples, width}),
                     at::empty({samples, 0}, host_options(at::kFloat)),
                     rows_of(part.labels, first, {samples})},
          .samples = samples,
          .valid_tokens = samples};  // all labels of a log are 0 or 1, so they count
}

std::string saved_preprocessing(const std::string& checkpoint) {
  return CheckpointReader::open(checkpoint).text(kPreprocessingName);
}

}  // namespace strata
