// An evaluation resumes a run from a checkpoint with no steps left: data, mesh and rows are set up
// as in training, and nothing is written. A disk tier gets a temporary folder next to the recipe's,
// because the run's own folder may be ahead of the checkpoint.
#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/error_source.h"
#include "strata/base/json_text.h"
#include "strata/base/units.h"
#include "strata/checkpoint/reader.h"
#include "strata/cli/arguments.h"
#include "strata/cli/report_origin.h"
#include "strata/cli/run_messages.h"
#include "strata/cli/verbs.h"
#include "strata/cli/weights_option.h"
#include "strata/disk/temporary_disk.h"
#include "strata/run/inspection_text.h"
#include "strata/run/rank_options.h"
#include "strata/run/recipe_file.h"
#include "strata/run/resume_point.h"
#include "strata/run/training_run.h"
#include "strata/task/text/text_task.h"

namespace strata {
namespace {

struct EvaluateArguments {
  std::string checkpoint, json, report;
  std::vector<std::string> overrides;
  bool importance = false;
  int hot_ids = 0;
  WeightType weights = WeightType::kPrecision;
};

// An evaluation of the rounded values computes what a server with such weights computes.
void require_rounding(WeightType type, const Recipe& recipe) {
  if (type == WeightType::kPrecision) return;
  constexpr ErrorSource kErrors{"cli.evaluate"};
  const std::string is = weights_ending("--weights ", type);
  if (!text_task(recipe))
    throw kErrors.user(is, "only models of text have weights of this type", "task text",
                       recipe.task->title(), "leave out --weights");
  require_weights(type, recipe);
}

Recipe evaluated_recipe(const EvaluateArguments& arguments) {
  const CheckpointReader checkpoint = CheckpointReader::open(arguments.checkpoint);
  if (checkpoint.is_pretrained())
    throw UserError({.operation = "cli.evaluate",
                     .where = arguments.checkpoint,
                     .what = "another program's model says nothing of data to evaluate on",
                     .expected = "a checkpoint of strata train",
                     .got = "a Hugging Face folder or a GGUF file",
                     .fix = "name a checkpoint"});
  Recipe recipe =
      parse_recipe(checkpoint.manifest().recipe, arguments.checkpoint, arguments.overrides);
  recipe.task->check_evaluation(arguments.checkpoint);
  require_rounding(arguments.weights, recipe);
  recipe.train.steps = resume_position(recipe, arguments.checkpoint).steps_done;
  recipe.train.checkpoint_folder.clear();
  recipe.train.tensorboard.clear();
  return recipe;
}

// "int8     validation 1.2345 nats a token, 0.0012 more; perplexity 3.4325 to 3.4366 (+0.12 %)"
std::string rounded_text(WeightType type, double loss, double rounded) {
  const double change = rounded - loss;
  std::string name = name_of(type);
  name.resize(9, ' ');
  return name + "validation " + format_double(rounded, 4) + " nats a token, " +
         format_double(std::abs(change), 4) + (change < 0 ? " less" : " more") + "; perplexity " +
         format_double(std::exp(loss), 4) + " to " + format_double(std::exp(rounded), 4) + " (" +
         (change < 0 ? "" : "+") + format_double(100 * std::expm1(change), 3) + " %)\n";
}

void print(const EvaluateArguments& arguments, const Recipe& recipe, const TrainingResult& result) {
  std::cout << "step     " << recipe.train.steps << " of " << arguments.checkpoint << '\n'
            << "loss     validation " << format_double(result.validation_loss, 4) << " nats a "
            << result.unit << (result.validation_metrics.empty() ? "" : ", ")
            << metrics_text(result.validation_metrics) << '\n'
            << (result.rounded_loss
                    ? rounded_text(arguments.weights, result.validation_loss, *result.rounded_loss)
                    : "")
            << (result.embeddings.empty()
                    ? ""
                    : "rows     " + size_text(sum_of(result.embeddings)) + "\n")
            << tables_text(result.inspection.tables);
}

// Every process refuses before planning.
void require_samples(const EvaluateArguments& arguments, const TaskData& data) {
  if (data.evaluates()) return;
  throw UserError({.operation = "cli.evaluate",
                   .where = arguments.checkpoint,
                   .what = "its recipe has no samples to evaluate on",
                   .expected = "samples for validation",
                   .got = "none",
                   .fix = "pass --set data.validation_fraction=0.1"});
}

void run_evaluate(const EvaluateArguments& arguments) {
  ResolvedRun resolved = resolve_here(evaluated_recipe(arguments));
  Recipe& recipe = resolved.recipe;
  const TrainingRequest request{
      .resume = arguments.checkpoint,
      .on_notice = resolved.on_notice,
      .inspection = {.importance = arguments.importance, .hot_ids = arguments.hot_ids},
      .weights = arguments.weights};
  World world = join_world(resolved);
  const std::string decided = world.agree([&] {
    for (const auto& [option, path] :
         {std::pair("--json", &arguments.json), std::pair("--report", &arguments.report)})
      if (!path->empty()) require_writable_file(*path, option);
    const std::unique_ptr<const TaskData> data = open_data(recipe, arguments.checkpoint);
    require_samples(arguments, *data);
    recipe.task->check_inspection(request.inspection, *data);
    return decisions_text(plan_run(resolved, /*probe=*/false, &world).plan);
  });
  const PlannedRun run = agree_on_plan(world, resolved, decided);
  const TemporaryDisk disk(recipe.memory.disk.path, "evaluate", world.process());
  recipe.memory.disk.path = disk.path();
  const TrainingResult result = train(world, recipe, run, request);
  if (world.process() > 0) return;
  print(arguments, recipe, result);
  if (!arguments.json.empty()) {
    nlohmann::ordered_json json = {{"loss", result.validation_loss}, {"steps", recipe.train.steps}};
    for (const auto& [name, value] : result.validation_metrics) json[name] = value;
    if (result.rounded_loss)
      json[name_of(arguments.weights)] = {
          {"loss", *result.rounded_loss},
          {"change", *result.rounded_loss - result.validation_loss}};
    if (!result.inspection.json.empty())
      json = nlohmann::ordered_json::parse(result.inspection.json);
    write_file(arguments.json, json_text(json, 2) + "\n");
    std::cout << "json     " << arguments.json << '\n';
  }
  if (!arguments.report.empty()) {
    const RecipeArguments source{"of the checkpoint " + arguments.checkpoint, arguments.overrides};
    write_run_report(arguments.report, recipe, run, result, {},
                     report_origin(recipe, source.text()));
    std::cout << "report   " << arguments.report << '\n';
  }
}

}  // namespace

void add_evaluate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand(
      "evaluate", "measure a checkpoint on the samples of its recipe's validation");
  auto arguments = std::make_shared<EvaluateArguments>();
  verb->add_option("checkpoint", arguments->checkpoint,
                   "checkpoint, or the folder that holds several")
      ->required()
      ->check(refuse_empty_path);
  verb->add_flag("--importance", arguments->importance,
                 "of a recommender: what each feature carries, by permuting it among the samples");
  verb->add_option("--hot-ids", arguments->hot_ids,
                   "of a recommender: so many ids of each table with the most updates, up to 10000")
      ->check(between(0, 10000))
      ->type_name("COUNT");
  add_weights_option(*verb, arguments->weights)
      ->description(
          "of a model of text: int8 or int4 also measures the weights that `strata serve "
          "--weights TYPE` has, and prints the change");
  verb->add_option("--json", arguments->json, "write everything to this file, too")
      ->check(refuse_empty_path)
      ->type_name("FILE");
  verb->add_option("--report", arguments->report, "write a self-contained HTML report")
      ->check(refuse_empty_path)
      ->type_name("FILE");
  verb->add_option("--set", arguments->overrides,
                   "override a field of the recipe: --set data.validation=later.tsv")
      ->allow_extra_args(false)
      ->type_name("FIELD=VALUE");
  verb->callback([arguments] { run_evaluate(*arguments); });
}

}  // namespace strata
