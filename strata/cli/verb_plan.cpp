#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/cli/recipe_arguments.h"
#include "strata/cli/verbs.h"
#include "strata/plan/plan_json.h"
#include "strata/plan/plan_text.h"
#include "strata/schedule/grid.h"
#include "strata/train/planned_run.h"

namespace strata {
namespace {

struct PlanArguments {
  RecipeArguments recipe;
  bool estimate = false;
  bool program = false;
  std::string json;
};

void print_programs(const Plan& plan) {
  for (int rank = 0; rank < plan.schedule.num_ranks(); ++rank)
    std::cout << "\nrank " << rank << '\n' << schedule::listing(plan.schedule.programs[rank]);
}

void write_json(const Plan& plan, const std::string& path) {
  std::ofstream file(path);
  file << to_json(plan).dump(1) << '\n';
  if (file.flush()) return;
  throw UserError({.operation = "cli.plan",
                   .where = path,
                   .what = "the plan cannot be written",
                   .fix = "name a file in an existing, writable folder"});
}

void run_plan(const PlanArguments& arguments) {
  const PlannedRun run = plan_run(arguments.recipe.load(), /*probe=*/!arguments.estimate);
  std::cout << plan_text(run.plan);
  if (arguments.program) print_programs(run.plan);
  if (!arguments.json.empty()) write_json(run.plan, arguments.json);
}

}  // namespace

void add_plan_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("plan", "show where the model is cut, what it costs, and when");
  auto arguments = std::make_shared<PlanArguments>();
  arguments->recipe.add_to(*verb);
  verb->add_flag("--estimate", arguments->estimate, "take seconds from FLOPs, measure nothing");
  verb->add_flag("--program", arguments->program, "list every rank's actions");
  verb->add_option("--json", arguments->json, "write the plan to this file, too");
  verb->callback([arguments] { run_plan(*arguments); });
}

}  // namespace strata
