#include "strata/cli/recommender/serving/column_scorer.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/comm/ranks.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

struct ReadSamples final : RequestSamples {
  explicit ReadSamples(SampleBatch read) : batch(std::move(read)) {}
  SampleBatch batch;
};

}  // namespace

ColumnScorer::ColumnScorer(std::shared_ptr<const Preprocessing> preprocessing, Options options,
                           Load load)
    : preprocessing_(std::move(preprocessing)),
      columns_(feature_columns(preprocessing_->options())),
      options_(options),
      load_(std::move(load)) {}

std::vector<TensorMetadata> ColumnScorer::inputs() const {
  std::vector<TensorMetadata> inputs;
  for (const FeatureColumn& column : columns_)
    inputs.push_back({.name = column.name,
                      .datatype = column.has_numbers ? Datatype::kFp64 : Datatype::kBytes,
                      .shape = {-1}});
  return inputs;
}

std::unique_ptr<const RequestSamples> ColumnScorer::read(const InferenceRequest& request,
                                                         std::int64_t samples) const {
  std::vector<ColumnValues> values;
  for (const FeatureColumn& column : columns_) {
    const auto tensor = std::ranges::find(request.inputs, column.name, &Tensor::name);
    STRATA_CHECK(tensor != request.inputs.end(), "cli.column_scorer");
    ColumnValues& of = values.emplace_back();
    if (column.has_numbers)
      of.numbers = values_of<double>(*tensor);
    else
      of.texts = texts_of(*tensor);
  }
  try {
    return std::make_unique<ReadSamples>(read_columns(*preprocessing_, samples, values));
  } catch (const UserError& error) {  // its place is in the request
    throw ApiError({.message = error.text().where + ": " + ApiError::of(error).what(),
                    .code = "invalid_value"});
  }
}

SampleScores ColumnScorer::score(std::span<const RequestSamples* const> requests) {
  std::vector<const SampleBatch*> batches;
  for (const RequestSamples* request : requests)
    batches.push_back(&dynamic_cast<const ReadSamples&>(*request).batch);
  const std::shared_ptr<CheckpointScorer> now = scorer();
  std::vector<float> logits = now->logits(join(batches));
  const RowsAge age = now->rows_age();
  const std::int64_t stale =
      std::max<std::int64_t>(0, std::max(age.newest, now->version()) - age.version);
  if (stale > options_.most_stale)
    throw ApiError({.status = 503,
                    .message = "embeddings lack " + std::to_string(stale) +
                               " updates; the server allows " + std::to_string(options_.most_stale),
                    .type = "server_error",
                    .code = "stale",
                    .retry_after = std::chrono::seconds(1)});
  return {.logits = std::move(logits), .numbers = {now->version(), age.version, stale}};
}

// Libraries multiply by one thread in a rank's thread, and the rank's pool divides products.
void ColumnScorer::run(const std::function<void()>& passes) {
  try {
    run_thread_ranks({.threads_per_rank = options_.threads}, [&](Group&, MemoryAccount&) {
      {
        std::shared_ptr<CheckpointScorer> first = load_();
        const std::scoped_lock lock(mutex_);
        scorer_ = std::move(first);
      }
      ready_ = true;
      loaded_.set_value();
      passes();
    });
  } catch (...) {
    if (ready_) throw;
    loaded_.set_exception(std::current_exception());
  }
}

std::shared_ptr<CheckpointScorer> ColumnScorer::scorer() const {
  const std::scoped_lock lock(mutex_);
  return scorer_;
}

void ColumnScorer::replace(std::shared_ptr<CheckpointScorer> scorer, const std::string& path) {
  std::unique_lock lock(mutex_);
  if (!scorer->reads_same_samples_as(*scorer_))
    throw UserError({.operation = "cli.serve",
                     .where = path,
                     .what = "the checkpoint is of another model",
                     .expected = "features, embeddings and a net as in the one that is served",
                     .got = "others",
                     .fix = "start a server of this checkpoint"});
  scorer_.swap(scorer);
  lock.unlock();  // the earlier one ends here, or after the pass that uses it
}

}  // namespace strata
