/// Trains a recipe from first values or a checkpoint to its last step, on all ranks.
///
/// Threads  call it from one thread of every process; rank 0's process makes the callbacks and gets
///          the result.
/// Errors   what plan, data, checkpoint and the ranks refuse; a step whose loss is not finite.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/clock/quality_target.h"
#include "strata/clock/run_file.h"
#include "strata/comm/ranks.h"
#include "strata/models/weight_type.h"
#include "strata/report/metrics.h"
#include "strata/run/planned_run.h"
#include "strata/task/task.h"
#include "strata/train/measurements.h"

namespace strata {

struct TrainingResult;

/// A rank of a run between two of its steps. All methods are collective.
class RankBetweenSteps {
 public:
  virtual Trainer& trainer() = 0;
  virtual Group& group() = 0;
  /// Evaluates the model on TaskData::validation().
  virtual Evaluation evaluate() = 0;
  /// Saves a checkpoint to the folder and waits until it is complete; returns its folder on rank 0.
  virtual std::string save(const std::string& folder) = 0;
  /// Adds the last steps' events and the layers' seconds to the result, which rank 0 gets; null on
  /// other ranks.
  virtual const TrainingResult* gather_result() = 0;

 protected:
  ~RankBetweenSteps() = default;
};

/// What a run does next.
struct NextStep {
  bool stop = false;                         ///< ends the run
  std::optional<double> learning_rate = {};  ///< of the step; none: the recipe's
};

struct TrainingRequest {
  /// Checkpoint or its parent, or the folder of memory.disk, to resume from; empty: start from
  /// `from`.
  std::string resume;
  /// Hugging Face folder or checkpoint whose weights are the first values; unused with `resume`.
  std::string from;
  std::function<void(const StepRecord&)> on_step;  ///< after every step
  /// Before and after every validation of the run, also the one at its end.
  std::function<void(const TrainingPosition&)> on_validation_begin;
  std::function<void(const RunValidation&)> on_validation;
  /// gets the folder of each complete checkpoint
  std::function<void(const std::string&)> on_checkpoint;
  std::function<void(const std::string&)> on_notice;  ///< for people; from any thread, any time
  const TaskData* data = nullptr;                     ///< the run's, if it is already open
  InspectionRequest inspection = {};                  ///< of the model, at the end
  /// Fewer bits: also evaluates, at the end, the weights of `resume` rounded to them.
  WeightType weights = WeightType::kPrecision;
  bool timeline = false;                    ///< devices record when they do their work
  const std::atomic<bool>* stop = nullptr;  ///< becomes true: finish the step, save, return
  /// Called by every rank before each step, and after the last one until it ends the run; all ranks
  /// must return the same; may be empty.
  std::function<NextStep(RankBetweenSteps&)> before_step;
};

/// How a run with train.target ended.
struct TargetOutcome {
  QualityTarget target;
  double value = 0;  ///< in the last validation
  bool reached = false;
};

struct TrainingResult {
  std::vector<StepRecord> records;       ///< one a step of this run
  std::vector<MeasuredStep> last_steps;  ///< the last few, for timelines
  double validation_loss = 0;            ///< at the end; 0 without validation data
  NamedMetrics validation_metrics;       ///< at the end; empty without validation data
  std::optional<double> rounded_loss;    ///< validation_loss with rounded weights
  std::optional<TargetOutcome> target;   ///< none: no target, or stopped
  Inspection inspection;                 ///< what was requested
  std::string unit = "token";            ///< what losses are means of (TaskData::unit)
  std::vector<TableSize> embeddings;     ///< at the end; empty: none, or a server did not answer
  double median_step_seconds = 0;        ///< without the first step
  double median_bubble = 0;
  /// of a step in the order that the run searched again; none: the plan's order stayed
  std::optional<Simulation> simulation;
  std::vector<LayerSeconds> layers;  ///< what each layer needed, mean of the ranks that have it
  std::string checkpoint;            ///< the last one written; empty: none
  bool stopped = false;              ///< by `stop`, before the last step
  bool on_disk = false;              ///< the run can be resumed from memory.disk.path
};

TrainingResult train(World& world, const Recipe& recipe, const PlannedRun& run,
                     const TrainingRequest& request);

/// The simulated step of the order that the run ended with.
inline const Simulation& predicted_step(const PlannedRun& run, const TrainingResult& result) {
  return result.simulation ? *result.simulation : run.plan.simulation;
}

/// Sets the medians of the result's steps.
void set_medians(TrainingResult& result);

/// The same with a plan by estimated seconds, and with the processes that the environment names.
TrainingResult train(const ResolvedRun& run, const TrainingRequest& request = {});

/// Opens the data of the recipe's task. `resume` as in TrainingRequest.
std::unique_ptr<TaskData> open_data(const Recipe& recipe, const std::string& resume = "");

/// What the trained model wrote after a prompt; empty: no sample.
struct TextSample {
  std::string prompt;
  std::string text;
};

/// The report of a run as a page; of one without steps, its plan. `origin`: facts about the
/// report's origin, which the header lists with those of the run.
std::string run_report(const Recipe& recipe, const PlannedRun& run, const TrainingResult& result,
                       const TextSample& sample,
                       const std::vector<std::pair<std::string, std::string>>& origin);
void write_run_report(const std::string& path, const Recipe& recipe, const PlannedRun& run,
                      const TrainingResult& result, const TextSample& sample,
                      const std::vector<std::pair<std::string, std::string>>& origin);

}  // namespace strata
