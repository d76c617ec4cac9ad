/// Feeds the rank that reads a recommender's rows: its replica's part of every step's samples, through an
/// embedding worker.
///
/// Threads  the rank's; samples are read on the worker's thread, too.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "strata/embed/worker.h"
#include "strata/pipeline/batch_rows.h"

namespace strata {

/// The samples of a run, as they follow one another.
struct SampleOrder {
  std::function<std::int64_t(std::int64_t samples_seen)> seen_after;  ///< the next mini-batch
  std::function<SampleBatch(std::int64_t samples_seen)> part;         ///< of it, this replica's
};

class EmbeddedRows final : public BatchRows {
 public:
  EmbeddedRows(WorkerOptions options, std::unique_ptr<RowServers> servers, SampleOrder order,
               RowsAheadOptions ahead = {});

  std::int64_t width() const override { return worker_.width(); }
  void prefetch(std::int64_t step) override { worker_.prefetch(step); }
  void fetch(std::int64_t step, bool training, const at::Tensor& rows) override;
  void send_gradients(std::int64_t step, const at::Tensor& gradients) override;

  /// The run goes on at this step, where so many samples were seen.
  void begin(std::int64_t step, std::int64_t samples_seen);

  /// This replica's part of a step.
  std::shared_ptr<const SampleBatch> samples(std::int64_t step) { return worker_.samples(step); }

  /// With what later steps have read of older versions.
  void save(std::int64_t version);
  void await(std::int64_t version) { worker_.await(version); }

  /// The samples that are evaluated next, and after how many updates.
  void evaluate(std::int64_t version, SampleBatch part);

  /// Since it was taken last: see EmbeddingWorker.
  struct Use {
    double wait_seconds = 0;
    std::vector<std::vector<std::int64_t>> lacked;  ///< by table
  };
  double take_worked_seconds() { return worker_.take_worked_seconds(); }
  Use take_use() { return {worker_.take_waited_seconds(), worker_.take_staleness_counts()}; }

 private:
  SampleBatch part_of_step(std::int64_t step);

  SampleOrder order_;
  std::map<std::int64_t, std::int64_t> seen_at_;  // by step, of those that are still to come
  const RowsAhead ahead_;
  std::unique_ptr<RowServers> servers_;
  EmbeddingWorker worker_;
  SampleBatch evaluated_;
  std::int64_t evaluated_version_ = 0;
  std::int64_t samples_ = 0;  // of the last step, without padding
};

}  // namespace strata
