/// Feeds the rank that reads a recommender's rows: passes its replica's part of every step's
/// samples to an embedding worker.
///
/// Threads  the rank's thread; the worker's thread reads samples, too.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "strata/embed/worker.h"
#include "strata/pipeline/batch_rows.h"

namespace strata {

/// The order of a run's samples.
struct SampleOrder {
  /// after the mini-batch at `samples_seen`
  std::function<std::int64_t(std::int64_t samples_seen)> seen_after;
  /// this replica's part of that mini-batch
  std::function<SampleBatch(std::int64_t samples_seen)> part;
};

class EmbeddedRows final : public BatchRows {
 public:
  EmbeddedRows(WorkerOptions options, std::unique_ptr<RowServers> servers, SampleOrder order,
               RowsAheadOptions ahead = {});

  std::int64_t width() const override { return worker_.width(); }
  void prefetch(std::int64_t step) override { worker_.prefetch(step); }
  void fetch(std::int64_t step, bool training, const at::Tensor& rows) override;
  void send_gradients(std::int64_t step, const at::Tensor& gradients) override;

  /// The run starts or resumes at this step, after so many samples.
  void begin(std::int64_t step, std::int64_t samples_seen);

  /// This replica's samples of a step.
  std::shared_ptr<const SampleBatch> samples(std::int64_t step) { return worker_.samples(step); }

  /// Saves rows, and what later steps have read of older versions.
  void save(std::int64_t version);
  void await(std::int64_t version) { worker_.await(version); }

  /// Sets the samples of the next evaluation, and after how many updates it takes place.
  void evaluate(std::int64_t version, SampleBatch part);

  /// Totals since the last call of take(): see EmbeddingWorker.
  struct Use {
    double wait_seconds = 0;
    std::vector<std::vector<std::int64_t>> lacked;  ///< by table
  };
  EmbeddingWorker::Worked take_worked() { return worker_.take_worked(); }
  Use take_use() { return {worker_.take_waited_seconds(), worker_.take_staleness_counts()}; }

 private:
  SampleBatch part_of_step(std::int64_t step);

  SampleOrder order_;
  std::map<std::int64_t, std::int64_t> seen_at_;  // by step, for pending steps
  const RowsAhead ahead_;
  std::unique_ptr<RowServers> servers_;
  EmbeddingWorker worker_;
  SampleBatch evaluated_;
  std::int64_t evaluated_version_ = 0;
  std::int64_t samples_ = 0;  // of the last step, without padding
};

}  // namespace strata
