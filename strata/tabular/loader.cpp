#include "strata/tabular/loader.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/tabular/forgotten_separators.h"
#include "strata/tabular/sample_check.h"

namespace strata {

SampleReader::SampleReader(std::shared_ptr<const SampleFile> file,
                           std::shared_ptr<const Preprocessing> preprocessing)
    : file_(std::move(file)), preprocessing_(std::move(preprocessing)) {
  SampleColumns columns(*file_, preprocessing_->options());
  label_ = columns.label;
  group_ = columns.group;
  numeric_ = std::move(columns.numeric);
  categorical_ = std::move(columns.categorical);
}

SampleBatch SampleReader::read(const std::vector<std::int64_t>& which) const {
  const TabularOptions& options = preprocessing_->options();
  SampleBatch batch{.samples = static_cast<std::int64_t>(which.size()), .categorical = {}};
  batch.numeric.reserve(which.size() * numeric_.size());
  batch.labels.reserve(which.size());
  batch.categorical.resize(categorical_.size());
  for (IdLists& lists : batch.categorical) {
    lists.offsets.reserve(which.size() + 1);
    lists.ids.reserve(which.size());
  }
  SampleText text;
  for (std::size_t at = 0; at < which.size(); ++at) {
    const std::int64_t sample = which[at];
    file_->prefetch(std::span(which).subspan(at));
    file_->read(sample, text);
    const auto column = [&](int index) {
      return ColumnText{*file_, sample, index, text.fields[static_cast<std::size_t>(index)]};
    };
    batch.labels.push_back(column(label_).label(options.positive));
    for (std::size_t i = 0; i < numeric_.size(); ++i)
      batch.numeric.push_back(preprocessing_->number(i, column(numeric_[i])));
    for (std::size_t i = 0; i < categorical_.size(); ++i)
      preprocessing_->append_ids(i, column(categorical_[i]), batch.categorical[i]);
    if (group_ >= 0) batch.groups.push_back(hash_text(options.group, column(group_).text));
  }
  return batch;
}

TabularLoader::TabularLoader(SampleReader reader, std::int64_t count, bool shuffle,
                             EpochEnd last_batch, std::uint64_t seed)
    : reader_(std::move(reader)),
      count_(count),
      last_batch_(last_batch),
      sampler_(count, shuffle, seed) {}

// The samples of an epoch that are part of mini-batches.
std::int64_t TabularLoader::used(std::int64_t mini_batch) const {
  if (last_batch_ != EpochEnd::kDrop) return count_;
  if (mini_batch > count_) {
    throw UserError({.operation = "tabular.loader",
                     .where = "data.last_batch",
                     .what = "every mini-batch would be dropped",
                     .expected = "a mini-batch of at most " + std::to_string(count_) +
                                 ", the samples of an epoch",
                     .got = std::to_string(mini_batch),
                     .fix = "set data.last_batch=short"});
  }
  return count_ - count_ % mini_batch;
}

std::int64_t TabularLoader::size(std::int64_t samples_seen, std::int64_t mini_batch) const {
  STRATA_CHECK(samples_seen >= 0 && mini_batch > 0, "tabular.loader");
  if (last_batch_ != EpochEnd::kShort) return mini_batch;
  return std::min(mini_batch, count_ - samples_seen % count_);
}

SampleBatch TabularLoader::at(std::int64_t samples_seen, std::int64_t mini_batch) const {
  return at(samples_seen, mini_batch, 0, size(samples_seen, mini_batch));
}

SampleBatch TabularLoader::at(std::int64_t samples_seen, std::int64_t mini_batch,
                              std::int64_t first, std::int64_t count) const {
  STRATA_CHECK(first >= 0 && count >= 0 && first + count <= size(samples_seen, mini_batch),
               "tabular.loader");
  const std::int64_t epoch_samples = used(mini_batch);
  std::vector<std::int64_t> which;
  which.reserve(static_cast<std::size_t>(count));
  for (std::int64_t k = samples_seen + first; k < samples_seen + first + count; ++k)
    which.push_back(sampler_.at(k / epoch_samples, k % epoch_samples));
  return reader_.read(which);
}

double TabularLoader::epochs(std::int64_t samples_seen, std::int64_t mini_batch) const {
  return static_cast<double>(samples_seen) / static_cast<double>(used(mini_batch));
}

std::int64_t TabularLoader::steps(std::int64_t epochs, std::int64_t mini_batch) const {
  const std::int64_t whole = used(mini_batch) / mini_batch;
  if (last_batch_ == EpochEnd::kContinue) return epochs * count_ / mini_batch;
  return epochs * (last_batch_ == EpochEnd::kDrop ? whole : (count_ + mini_batch - 1) / mini_batch);
}

TabularValidationLoader::TabularValidationLoader(SampleReader reader, std::int64_t begin,
                                                 std::int64_t count)
    : reader_(std::move(reader)), begin_(begin), count_(count) {}

SampleBatch TabularValidationLoader::at(std::int64_t first, std::int64_t mini_batch) const {
  STRATA_CHECK(first >= 0 && mini_batch > 0, "tabular.validation_batch");
  std::vector<std::int64_t> which;
  for (std::int64_t k = first; k < std::min(count_, first + mini_batch); ++k) which.push_back(k);
  return read(std::move(which));
}

SampleBatch TabularValidationLoader::read(std::vector<std::int64_t> which) const {
  for (std::int64_t& sample : which) {
    STRATA_CHECK(sample >= 0 && sample < count_, "tabular.validation_batch");
    sample += begin_;
  }
  return reader_.read(which);
}

TabularData open_tabular(const TabularOptions& input, std::uint64_t seed,
                         const std::string& state) {
  const TabularOptions options = complete(input);
  const bool synthetic = options.format == SampleFormat::kSynthetic;
  // The state of a checkpoint is checked before all lines are read.
  std::shared_ptr<const Preprocessing> preprocessing;
  if (!state.empty()) preprocessing = Preprocessing::load_state(options, state);
  const auto train = open_checked_samples(options.train, options);
  std::int64_t count = train->samples(), begin = count, held_out = 0;
  auto validation = train;
  if (synthetic) {
    count = begin = options.synthetic.samples;
    held_out = options.synthetic.validation_samples;
  } else if (!options.validation.empty()) {
    validation = open_checked_samples(options.validation, options);
    begin = 0;
    held_out = validation->samples();
  } else if (options.validation_fraction > 0 && count > 1) {
    held_out = std::clamp<std::int64_t>(
        static_cast<std::int64_t>(options.validation_fraction * static_cast<double>(count)), 1,
        count - 1);
    count = begin = count - held_out;
  }
  const std::int64_t fitted =
      options.fit_samples > 0 ? std::min(options.fit_samples, count) : count;
  // A resumed run has reported them when it started.
  std::vector<std::string> notices;
  if (state.empty()) notices = forgotten_separators(options, *train, count);
  if (!preprocessing) preprocessing = Preprocessing::fit(options, *train, fitted);
  return {.preprocessing = preprocessing,
          .train = TabularLoader({train, preprocessing}, count, options.shuffle, options.last_batch,
                                 seed),
          .validation = TabularValidationLoader({validation, preprocessing}, begin, held_out),
          .notices = std::move(notices)};
}

}  // namespace strata
