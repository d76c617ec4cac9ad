#include "strata/cli/run_facts.h"

#include "strata/base/units.h"
#include "strata/cli/report_origin.h"
#include "strata/cli/version.h"
#include "strata/measure/processor.h"
#include "strata/run/recipe_file.h"
#include "strata/task/task.h"

namespace strata {

ClockOptions clock_options(const TrainArguments& arguments, const Recipe& recipe) {
  return {.mllog = arguments.mllog,
          .run_file = arguments.run_json,
          .benchmark = arguments.benchmark,
          .target = target_of(recipe),
          .resumes = !arguments.resume.empty()};
}

RunFacts run_facts(const Recipe& recipe, const TrainingStart& start) {
  return {.title = recipe.task->title(),
          .recipe = recipe.text,
          .version = kVersion,
          .machine = machine_text(recipe),
          .precision = precision_name(recipe.train.precision),
          .ranks = start.planned.ranks,
          .stages = start.planned.mesh.axes[Axis::kPipeline],
          .tensor_ranks = start.planned.mesh.axes[Axis::kTensor],
          .seed = recipe.train.seed,
          .mini_batch = recipe.train.mini_batch,
          .micro_batch = recipe.train.micro_batch,
          .training_samples = start.data->training_samples(),
          .validation_samples = start.data->validation_samples(),
          .steps_done = start.begin.steps_done};
}

RunStatus status_of(const TrainingResult& result) {
  if (result.stopped) return RunStatus::kStopped;
  if (!result.target) return RunStatus::kComplete;
  return result.target->reached ? RunStatus::kReached : RunStatus::kMissed;
}

std::string target_line(const TrainingResult& result) {
  if (!result.target) return "";
  const TargetOutcome& outcome = *result.target;
  return "target   " + outcome.target.text() + (outcome.reached ? " reached: " : " missed: ") +
         format_double(outcome.value, 4) +
         (outcome.reached || result.records.empty()
              ? ""
              : " after the last step, " + std::to_string(result.records.back().step)) +
         "\n";
}

}  // namespace strata
