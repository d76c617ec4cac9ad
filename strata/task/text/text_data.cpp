#include "strata/task/text/text_data.h"

#include <algorithm>

#include "strata/task/text/text_task.h"

namespace strata {
TextData::TextData(const TextTask& task, const TrainOptions& options)
    : corpus_(open_corpus(task.data_options(), task.model_options().context,
                          task.model_options().vocab)),
      loader_(corpus_.train, task.data_options().shuffle, static_cast<std::uint64_t>(options.seed)),
      options_(options) {}

MiniBatch TextData::at(std::int64_t samples_seen) const {
  return loader_.at(samples_seen, options_.mini_batch);
}

std::int64_t TextData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + options_.mini_batch;
}

std::int64_t TextData::validation_samples() const {
  return validated_samples(options_, corpus_.validation.count);
}

std::vector<MiniBatch> TextData::validation() const {
  std::vector<MiniBatch> batches;
  if (!evaluates()) return batches;
  const ValidationLoader loader(corpus_.validation);
  const std::int64_t samples = validation_samples();
  for (std::int64_t first = 0; first < samples; first += options_.mini_batch)
    batches.push_back(loader.at(first, std::min(options_.mini_batch, samples - first)));
  return batches;
}

}  // namespace strata
