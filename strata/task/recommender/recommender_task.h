/// Learns to predict clicks: a dense net, logs of samples, and embeddings on parameter servers or
/// in this process.
///
/// Fields  those of recommender_fields.h: model, data, train.epochs, embedding.
/// Source  the asynchronous embeddings and synchronous net of Persia (Lian et al. 2022).
/// Errors  as task.h.
#pragma once

#include "strata/task/recommender/recommender_fields.h"
#include "strata/task/recommender/recommender_kind.h"
#include "strata/task/task.h"

namespace strata {

class RecommenderTask final : public Task {
 public:
  RecommenderTask() = default;
  explicit RecommenderTask(RecommenderFields fields) : fields_(std::move(fields)) {}

  void describe(OptionSet& set) override;
  void set_defaults(Recipe& recipe) const override;
  void complete(Recipe& recipe, const OptionSet& options) const override;
  void check(const Recipe& recipe, const FieldPlace& place) const override;

  std::string title() const override;
  Sequential model(const Recipe& recipe, TensorSplit split) const override;
  std::vector<TensorSpec> batch_inputs(std::int64_t samples) const override;
  CheckpointModel checkpoint_model() const override;

  RowsCost rows_cost(const Recipe& recipe, const MachineProfile& machine) const override;
  RowsCost measured_rows_cost(const Recipe& recipe, const MachineProfile& machine,
                              const TaskData* data) const override;
  void check_plan(const StepDecisions& decisions, int processes) const override;
  bool may_use_disk() const override { return false; }
  bool has_uncounted_memory() const override { return true; }
  std::vector<std::string> validation_metrics() const override {
    return {"auc", "grouped_auc", "normalized_entropy", "calibration"};
  }
  PlanAppendix plan_appendix(const Recipe& recipe) const override;

  bool takes_tensors() const override { return false; }
  std::unique_ptr<TaskData> open(const Recipe& recipe, const std::string& resume) const override;
  std::unique_ptr<TaskRun> start(const Recipe& recipe, const StepPlan& steps, const TaskData& data,
                                 const TaskStart& start) const override;
  void check_first_weights(const std::string& from) const override;
  void check_resume(const Recipe& recipe, const Task& before, const Recipe& recipe_before,
                    const std::string& path) const override;
  void check_inspection(const InspectionRequest& request, const TaskData& data) const override;
  void check_evaluation(const std::string& path) const override;
  std::vector<EmbeddingTable> saved_embeddings(const Recipe& recipe,
                                               const std::string& checkpoint) const override;
  std::shared_ptr<const Task> replayed(const std::string& resume) const override;

  std::string data_source() const override;
  void add_to_report(ReportInput& input) const override;

  const RecommenderFields& fields() const { return fields_; }

 private:
  RecommenderFields fields_;
};

/// The recommender's fields of a recipe; null if it has another task.
const RecommenderFields* recommender_fields(const Recipe& recipe);

}  // namespace strata
