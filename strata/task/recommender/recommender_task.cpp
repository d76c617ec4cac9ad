#include "strata/task/recommender/recommender_task.h"

#include <algorithm>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/checkpoint/reader.h"
#include "strata/measure/probe_cache.h"
#include "strata/report/report.h"
#include "strata/task/recommender/click_data.h"
#include "strata/task/recommender/recommender_limits.h"
#include "strata/task/recommender/recommender_run.h"
#include "strata/task/recommender/rows_cost.h"
#include "strata/task/recommender/rows_start.h"
#include "strata/task/recommender/same_features.h"
#include "strata/task/recommender/saved_embeddings.h"
#include "strata/task/recommender/table_plan.h"

namespace strata {
namespace {

std::unique_ptr<Task> make_recommender_task() { return std::make_unique<RecommenderTask>(); }

}  // namespace

TaskKind recommender_task_kind() {
  return {
      .name = "recommender",
      .title =
          "Fields of task recommender (model.kind dlrm, dcn, deep_wide), in addition to the shared "
          "ones:",
      .model_kinds = all_names<RecommenderKind>(),
      .make = make_recommender_task};
}

const RecommenderFields* recommender_fields(const Recipe& recipe) {
  const auto* task = dynamic_cast<const RecommenderTask*>(recipe.task.get());
  return task ? &task->fields() : nullptr;
}

void RecommenderTask::describe(OptionSet& set) { strata::describe(set, fields_); }

void RecommenderTask::set_defaults(Recipe& recipe) const {
  recipe.optimizer = recommender_optimizer();
}

void RecommenderTask::complete(Recipe& recipe, const OptionSet& options) const {
  if (!options.is_set("train.micro_batch"))
    recipe.train.micro_batch = (recipe.train.mini_batch + recipe.mesh.axes[Axis::kData] - 1) /
                               recipe.mesh.axes[Axis::kData];
}

void RecommenderTask::check(const Recipe& recipe, const FieldPlace& place) const {
  strata::check(fields_, place);
  check_recommender(fields_, recipe, place);
}

std::string RecommenderTask::title() const {
  switch (fields_.model.kind) {
    case RecommenderKind::kDlrm:
      return "DLRM";
    case RecommenderKind::kDcn:
      return "DCN-v2";
    case RecommenderKind::kDeepWide:
      return "Deep and wide";
  }
  return "?";
}

Sequential RecommenderTask::model(const Recipe& recipe, TensorSplit split) const {
  return make_recommender(fields_.model, inputs_of(fields_), RecommenderOutput::kLoss, split,
                          recipe.train.precision);
}

std::vector<TensorSpec> RecommenderTask::batch_inputs(std::int64_t samples) const {
  return recommender_batch(inputs_of(fields_), samples);
}

CheckpointModel RecommenderTask::checkpoint_model() const {
  return CheckpointModel(network_fields(fields_));
}

RowsCost RecommenderTask::rows_cost(const Recipe& recipe, const MachineProfile& machine) const {
  return estimated_rows(fields_, recipe, machine);
}

RowsCost RecommenderTask::measured_rows_cost(const Recipe& recipe, const MachineProfile& machine,
                                             const TaskData* data) const {
  return probed_rows(fields_, recipe, machine, default_cache_file("rows.json"),
                     dynamic_cast<const ClickData*>(data));
}

void RecommenderTask::check_plan(const StepDecisions& decisions, int processes) const {
  check_planned_recommender(fields_, decisions, processes);
}

PlanAppendix RecommenderTask::plan_appendix(const Recipe& recipe) const {
  return table_plan(fields_, recipe);
}

std::unique_ptr<TaskData> RecommenderTask::open(const Recipe& recipe,
                                                const std::string& resume) const {
  const std::string state = resume.empty() ? "" : saved_preprocessing(resume);
  return std::make_unique<ClickData>(fields_, recipe.train, state);
}

std::unique_ptr<TaskRun> RecommenderTask::start(const Recipe& recipe, const StepPlan& steps,
                                                const TaskData& data,
                                                const TaskStart& start) const {
  RowsStart rows{.processes = start.processes,
                 .version = start.steps_done,
                 .resume = start.resume,
                 .notice = start.notice,
                 .stop = start.stop};
  if (start.agree)
    take_decision(rows, start.agree([&] { return decide_rows_start(fields_, recipe, rows); }));
  return std::make_unique<RecommenderRun>(fields_, recipe, steps,
                                          dynamic_cast<const ClickData&>(data), std::move(rows));
}

void RecommenderTask::check_first_weights(const std::string& from) const {
  throw UserError(
      {.operation = "task.recommender",
       .where = "--from",
       .what = "a recommender's net is nothing without the rows that it was trained with",
       .expected = "a checkpoint to resume from",
       .got = "--from " + from,
       .fix = "pass --resume " + from});
}

void RecommenderTask::check_resume(const Recipe& recipe, const Task& before,
                                   const Recipe& recipe_before, const std::string& path) const {
  if (const auto* trained = dynamic_cast<const RecommenderTask*>(&before))
    require_same_features({fields_, recipe}, {trained->fields_, recipe_before}, path);
}

std::vector<EmbeddingTable> RecommenderTask::saved_embeddings(const Recipe& recipe,
                                                              const std::string& checkpoint) const {
  return strata::saved_embeddings(fields_, recipe, checkpoint);
}

void RecommenderTask::check_inspection(const InspectionRequest& request,
                                       const TaskData& data) const {
  if (!request.importance || data.evaluates()) return;
  throw UserError({.operation = "task.inspection",
                   .where = "--importance",
                   .what = "there are no samples to permute the features of",
                   .expected = "data.validation, or a data.validation_fraction above 0",
                   .got = "neither",
                   .fix = "pass --set data.validation=FILE"});
}

void RecommenderTask::check_evaluation(const std::string& path) const {
  if (fields_.embedding.is_local()) return;
  throw UserError({.operation = "task.recommender",
                   .where = "embedding.servers",
                   .what = "servers would return to this checkpoint while others train with them",
                   .expected = "a run whose rows are saved next to its checkpoints",
                   .got = fields_.embedding.servers.front(),
                   .fix = "resume with strata train RECIPE --resume " + path +
                          " --importance, which evaluates at its end"});
}

// A task with rows of its own in this process, for one step.
std::shared_ptr<const Task> RecommenderTask::replayed(const std::string& resume) const {
  RecommenderFields fields = fields_;
  if (!fields.embedding.is_local() && !resume.empty())
    throw UserError({.operation = "task.recommender",
                     .where = "--resume",
                     .what = "rows of this checkpoint lie on servers, which a replay leaves alone",
                     .expected = "a step from first values, or rows of local servers",
                     .got = "--resume " + resume,
                     .fix = "leave --resume out"});
  fields.embedding.servers = {"local"};
  fields.embedding.cold.clear();
  fields.embedding.memory = {};
  return std::make_shared<RecommenderTask>(std::move(fields));
}

std::string RecommenderTask::data_source() const {
  return fields_.data.train.empty() ? name_of(fields_.data.format) : fields_.data.train;
}

void RecommenderTask::add_to_report(ReportInput& input) const {
  input.rows_are_local = fields_.embedding.is_local();
  if (!input.embeddings.empty())
    input.facts.emplace_back("embeddings", size_text(sum_of(input.embeddings)));
}

}  // namespace strata
