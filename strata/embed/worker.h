/// Brings pooled rows to a rank and turns their gradients into updates of rows: keeps the ids of batches
/// whose rows are on their way, as many steps ahead as each table's staleness allows.
///
/// At staleness 1 the rows of step t (from 0) are version t: those that all steps before have updated. At
/// staleness n they are version t - n + 1, or the version that the run began with where that is later.
/// Versions don't depend on timing, so neither does training.
///
/// Source   buffered ids and bounded staleness: Lian et al., "Persia" (arXiv 2111.05897).
/// Shapes   pooled values and their gradients [samples of this rank's part, width()].
/// Threads  one rank's thread; reading ids, finding distinct ones and sums of gradients go on beside it.
/// Errors   what reading ids and the servers refuse, when the rows are fetched or the next step begins.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "strata/base/executor.h"
#include "strata/embed/pooling.h"
#include "strata/embed/rows_ahead.h"
#include "strata/rowserver/row_servers.h"
#include "strata/tabular/sample_batch.h"

namespace strata {

/// Which rows a categorical feature reads, in the order of SampleBatch::categorical.
struct EmbeddedFeature {
  int table = 0;
  Pooling pooling = Pooling::kSum;
  int length = 1;  ///< kSequence
};

struct WorkerOptions {
  std::vector<FeatureSpec> tables;
  std::vector<int> staleness;  ///< per table, at least 1
  std::vector<EmbeddedFeature> features;
};

class EmbeddingWorker {
 public:
  /// This rank's part of the samples of a step; called on another thread.
  using IdSource = std::function<SampleBatch(std::int64_t step)>;

  EmbeddingWorker(WorkerOptions options, RowServers& servers, IdSource ids);
  ~EmbeddingWorker() = default;  ///< when all updates that were started have been sent
  EmbeddingWorker(const EmbeddingWorker&) = delete;
  EmbeddingWorker& operator=(const EmbeddingWorker&) = delete;

  std::int64_t width() const { return width_; }

  /// The run goes on at this step: rows have its version. `ahead`: what steps from there on had read in
  /// the run before it, which they read no more where it has all their ids and is not too old.
  void begin(std::int64_t step, std::vector<StepRows> ahead = {});

  /// Starts to read what the step allows to be read; before fetch() of the same step.
  void prefetch(std::int64_t step);
  /// This rank's part of a step that is not over, once it is read: one step is, before anybody asks.
  std::shared_ptr<const SampleBatch> samples(std::int64_t step);
  /// Waits for the rows of a step and pools them.
  void fetch(std::int64_t step, std::span<float> pooled);
  /// Starts the update that the gradients of a step's pooled values make.
  void send_gradients(std::int64_t step, std::vector<float> gradients, double rate_factor = 1);

  /// Rows as they are after `version` updates, which this waits for, pooled: for evaluation.
  void read(std::int64_t version, const SampleBatch& samples, std::span<float> pooled);

  /// Returns when the rows have all of `version` updates.
  void await(std::int64_t version);

  /// Has every shard save the rows as `version` updates have left them; waits until that is durable.
  void save(std::int64_t version);

  /// What steps from `step` on have read by now, which this waits for.
  std::vector<StepRows> rows_ahead(std::int64_t step);

  /// Rows that were used since it was taken last, per table, by how many updates they lacked those of
  /// all steps before: as many counts as the table's staleness.
  std::vector<std::vector<std::int64_t>> take_staleness_counts();
  double take_waited_seconds() { return std::exchange(waited_seconds_, 0); }
  /// Processor time of the executor's tasks since the last call.
  double take_worked_seconds() { return tasks_.take_processor_seconds(); }

 private:
  // The ids of a step and the rows that they have got, by table.
  struct Step {
    SampleBatch samples;
    std::vector<DistinctIds> distinct;
    std::vector<std::vector<float>> rows;
    std::vector<std::int64_t> versions;  // -1: not read yet
  };
  struct TableOfStep {
    std::int64_t step;
    int table;
  };
  struct Request {
    std::unique_ptr<PendingRows> pending;
    std::vector<TableOfStep> of;
  };

  PooledFeature pooled_feature(std::size_t feature) const;
  std::shared_ptr<Step> load(std::int64_t number);
  std::shared_ptr<Step> make_step(SampleBatch samples) const;
  void read_ahead(std::int64_t version, const std::vector<TableOfStep>& wanted);
  bool take_known(const TableOfStep& of, const std::vector<StepRows>& ahead);
  void await_rows(const std::vector<std::shared_ptr<Request>>& requests);
  void pool_step(const Step& step, std::span<float> pooled) const;
  std::vector<FeatureRows> row_gradients(const Step& step, std::span<const float> gradients) const;

  void submit(std::function<void()> task);
  void finish_tasks();

  WorkerOptions options_;
  RowServers& servers_;
  IdSource ids_;
  std::int64_t width_ = 0;
  std::vector<std::vector<int>> features_of_;  // by table
  std::vector<std::int64_t> column_of_;        // by feature, of the pooled values
  int largest_staleness_ = 1;
  std::vector<std::vector<std::int64_t>> lacked_;
  double waited_seconds_ = 0;

  // Shared with the executor; where a step is there, its rows are the rank's.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::shared_ptr<Step>> steps_;
  std::map<std::int64_t, int> requested_;  // by step: tables
  std::deque<std::shared_ptr<Request>> requests_;
  std::exception_ptr failure_;  // of a task

  Completion last_task_;
  Executor tasks_;  // last: its tasks use what is above
};

}  // namespace strata
