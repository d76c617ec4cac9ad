/// Scores the samples of KServe's requests, whose inputs are the columns of a log, with the newest
/// checkpoint that it has.
///
/// Inputs  FP64 for a column of numbers, in which NaN is a missing one; BYTES for any other column:
///         the text that a log has there.
/// Numbers version, the steps of training of the net; rows_version, the updates of the oldest
///         embeddings of a pass; stale, how many updates they lack: of the net's, or of those that
///         a server knows.
/// Errors  ApiError 503 from score(): embeddings that lack more updates than allowed.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "strata/kserve/model/sample_scorer.h"
#include "strata/tabular/feature_columns.h"
#include "strata/task/recommender/checkpoint_scorer.h"

namespace strata {

class ColumnScorer final : public SampleScorer {
 public:
  using Load = std::function<std::shared_ptr<CheckpointScorer>()>;

  struct Options {
    int threads = 1;
    std::int64_t most_stale = 0;  ///< updates that embeddings may lack
  };

  /// `load`: called once, on the thread of run(). `preprocessing`: that of the checkpoint.
  ColumnScorer(std::shared_ptr<const Preprocessing> preprocessing, Options options, Load load);

  bool ready() const override { return ready_; }
  std::vector<TensorMetadata> inputs() const override;
  std::vector<std::string> numbers() const override { return {"version", "rows_version", "stale"}; }
  std::unique_ptr<const RequestSamples> read(const InferenceRequest& request,
                                             std::int64_t samples) const override;
  SampleScores score(std::span<const RequestSamples* const> requests) override;
  void run(const std::function<void()>& passes) override;

  /// Returns when the first checkpoint is loaded; throws what ended that.
  void wait_until_ready() { loaded_.get_future().get(); }

  std::shared_ptr<CheckpointScorer> scorer() const;
  /// Later passes use this one. UserError: its samples mean something else.
  void replace(std::shared_ptr<CheckpointScorer> scorer, const std::string& path);

 private:
  const std::shared_ptr<const Preprocessing> preprocessing_;
  const std::vector<FeatureColumn> columns_;
  const Options options_;
  const Load load_;
  std::promise<void> loaded_;
  std::atomic<bool> ready_ = false;
  mutable std::mutex mutex_;
  std::shared_ptr<CheckpointScorer> scorer_;  // guarded by the mutex; null: not loaded yet
};

}  // namespace strata
