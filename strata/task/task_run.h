/// Defines what a task adds to the loop of a run: the inputs of each rank, the evaluation of the
/// model, and what is saved in addition to a checkpoint.
///
/// Threads  a TaskRun is made before the ranks start; each rank's thread makes and uses its own
///          TaskRank.
/// Errors   what data, servers and saved files refuse.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/checkpoint/saver.h"
#include "strata/comm/group.h"
#include "strata/data/batch.h"
#include "strata/pipeline/batch_rows.h"
#include "strata/pipeline/gradient_filter.h"
#include "strata/report/metrics.h"
#include "strata/report/report.h"
#include "strata/train/step_sums.h"
#include "strata/train/trainer.h"

namespace strata {

/// Where and how a run starts.
struct TaskStart {
  int processes = 1;
  std::int64_t steps_done = 0;  ///< 0: starts from first values
  std::string resume = "";      ///< the checkpoint of those steps, or its folder
  std::function<void(const std::string&)> notice = {};  ///< for people; any thread
  const std::atomic<bool>* stop = nullptr;              ///< true: give up waiting
  /// Returns the text of process 0 in every process; empty: there is one process.
  std::function<std::string(const std::function<std::string()>&)> agree = {};
};

/// The result on the validation samples, equal on every rank.
struct Evaluation {
  double loss = 0;  ///< mean over the valid units, nats
  NamedMetrics metrics;
};

/// What to compute about a trained model.
struct InspectionRequest {
  bool importance = false;  ///< what each feature contributes
  int hot_ids = 0;          ///< number of ids with the most updates, for each table
  bool report = false;      ///< also what the task's report shows
};

struct Inspection {
  std::vector<ReportTable> tables = {};         ///< what was requested
  std::vector<ReportTable> report_tables = {};  ///< for the report alone
  std::string json = "";  ///< an object with everything; empty: nothing to add
};

/// One rank's part. Collective where it takes a Group: all ranks call it at the same point.
class TaskRank {
 public:
  virtual ~TaskRank() = default;

  /// Supplies embeddings on the ranks that read them; null: batches contain all inputs.
  virtual BatchRows* rows() { return nullptr; }
  /// Changes the rank's gradients before each update; null: nothing does.
  virtual GradientFilter* gradient_filter() { return nullptr; }
  /// Called once, before the first step.
  virtual void begin(const TrainingPosition&) {}
  virtual MiniBatch mini_batch(std::int64_t step, std::int64_t samples_seen) = 0;
  /// Adds the task's numbers of a step to the sums that all ranks share; they arrive in `record`.
  virtual void add_statistics(StepSums&, StepRecord&) {}
  /// On rank 0, after the sums. `waits`: the run waits for this step's loss anyway.
  virtual void complete_record(StepRecord&, bool /*waits*/) {}
  /// Evaluates the model on the validation samples.
  virtual Evaluation evaluate(Trainer& trainer, Group& group) = 0;
  /// Saves what belongs to a checkpoint and is not in its folder.
  virtual void save(std::int64_t /*steps_done*/, Group&) {}
  virtual Inspection inspect(Trainer&, Group&, const InspectionRequest&, const Evaluation&) {
    return {};
  }
};

/// What the ranks of one run share.
class TaskRun {
 public:
  virtual ~TaskRun() = default;
  virtual std::unique_ptr<TaskRank> rank(Group& group) = 0;
  /// Size of each table of embeddings; empty: there are none, or a server does not answer. Any
  /// thread.
  virtual std::vector<TableSize> table_sizes() const { return {}; }
  /// On rank 0, after a checkpoint is complete.
  virtual void checkpoint_complete(const std::string& /*checkpoint_folder*/) {}
};

}  // namespace strata
