/// Provides pooled rows to a rank and turns their gradients into updates of rows. It reads the ids
/// and rows of as many steps ahead as each table's staleness allows.
///
/// At staleness 1 the rows of step t (from 0) are version t, with the updates of all earlier steps.
/// At staleness n they are version t - n + 1, or the version at which the run began if that is
/// later. Versions do not depend on timing, so training does not either.
///
/// Source   buffered ids and bounded staleness: Lian et al., "Persia" (arXiv 2111.05897).
/// Shapes   pooled values and their gradients [samples of this rank's part, width()].
/// Threads  one rank's thread. In parallel with it, one executor reads samples and computes their
///          distinct ids, and another sums gradients of rows and sends requests.
/// Errors   errors of the id source and of the servers, thrown by fetch() or by the next step.
#pragma once

#include <algorithm>
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
#include "strata/base/helper_threads.h"
#include "strata/embed/pooling.h"
#include "strata/embed/rows_ahead.h"
#include "strata/rowserver/row_servers.h"
#include "strata/tabular/sample_batch.h"

namespace strata {

/// The rows that a categorical feature reads, in the order of SampleBatch::categorical.
struct EmbeddedFeature {
  int table = 0;
  Pooling pooling = Pooling::kSum;
  int length = 1;  ///< kSequence
};

struct WorkerOptions {
  std::vector<FeatureSpec> tables;
  std::vector<int> staleness;  ///< per table, at least 1
  std::vector<EmbeddedFeature> features;
  int threads = 1;  ///< that pool rows and sum their gradients, the calling one included
};

class EmbeddingWorker {
 public:
  /// Returns this rank's part of the samples of a step; called on another thread.
  using IdSource = std::function<SampleBatch(std::int64_t step)>;

  EmbeddingWorker(WorkerOptions options, RowServers& servers, IdSource ids);
  ~EmbeddingWorker() = default;  ///< returns when all updates that were started have been sent
  EmbeddingWorker(const EmbeddingWorker&) = delete;
  EmbeddingWorker& operator=(const EmbeddingWorker&) = delete;

  std::int64_t width() const { return width_; }

  /// Starts or resumes at this step; the rows have its version. `ahead`: rows that steps from
  /// `step` on had read in the previous run. A step uses them instead of reading if they include
  /// all its ids and are not too stale.
  void begin(std::int64_t step, std::vector<StepRows> ahead = {});

  /// Starts the reads that the step allows; call before fetch() of the same step.
  void prefetch(std::int64_t step);
  /// Waits until this rank's samples of a step are read, and returns them; the step has not ended,
  /// and begin() was called for it or an earlier one.
  std::shared_ptr<const SampleBatch> samples(std::int64_t step);
  /// Waits for the rows of a step and pools them.
  void fetch(std::int64_t step, std::span<float> pooled);
  /// Starts the update with the gradients of a step's pooled values.
  void send_gradients(std::int64_t step, std::vector<float> gradients, double rate_factor = 1);

  /// Waits for version `version` of the rows and pools them, for evaluation.
  void read(std::int64_t version, const SampleBatch& samples, std::span<float> pooled);

  /// Returns when the rows have version `version`.
  void await(std::int64_t version);

  /// Makes every shard save version `version`; returns when it is durable.
  void save(std::int64_t version);

  /// Waits for the rows that steps from `step` on have started to read, and returns them.
  std::vector<StepRows> rows_ahead(std::int64_t step);

  /// Returns the number of rows used since the last call, per table and by the number of missing
  /// updates; a table has as many counts as its staleness.
  std::vector<std::vector<std::int64_t>> take_staleness_counts();
  double take_waited_seconds() { return std::exchange(waited_seconds_, 0); }
  /// Processor seconds of the executors' tasks and of helping threads since the last call.
  struct Worked {
    double busiest = 0;  ///< of the executor that worked longer
    double total = 0;
  };
  Worked take_worked() {
    const double loads = loads_.take_processor_seconds();
    const double requests = requesting_.take_processor_seconds();
    return {std::max(loads, requests), loads + requests + helpers_.take_processor_seconds()};
  }

 private:
  // The ids of a step and their rows, per table.
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
  Completion load(std::int64_t number);
  std::shared_ptr<Step> loaded(std::int64_t number);
  std::shared_ptr<Step> make_step(SampleBatch samples) const;
  void read_ahead(std::int64_t version, const std::vector<TableOfStep>& wanted);
  bool take_known(const TableOfStep& of, const std::vector<StepRows>& ahead);
  void await_rows(const std::vector<std::shared_ptr<Request>>& requests);
  void pool_step(const Step& step, std::span<float> pooled);
  std::vector<FeatureRows> row_gradients(Step& step, std::span<const float> gradients);

  Completion submit(Executor& executor, std::function<void()> task,
                    std::vector<Completion> after = {});
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

  std::map<std::int64_t, Completion> loads_of_;  // by step that has not ended
  std::int64_t next_load_ = 0;

  // Shared with the executors. When a step's rows have arrived, they belong to the rank.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::int64_t, std::shared_ptr<Step>> steps_;
  std::map<std::int64_t, int> requested_;  // by step: tables
  std::deque<std::shared_ptr<Request>> requests_;
  std::exception_ptr failure_;  // of a task

  HelperThreads helpers_;
  Completion last_load_, last_request_;
  // Last: their tasks use the members above, and requests wait for loads.
  Executor loads_;
  Executor requesting_;
};

}  // namespace strata
