#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/json_text.h"
#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/run_messages.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/serving_arguments.h"
#include "strata/cli/serving_plan_text.h"
#include "strata/cli/verbs.h"
#include "strata/plan/ledger/zero_bytes.h"
#include "strata/plan/search/shared_host.h"
#include "strata/plan/text/plan_text.h"
#include "strata/pretrained/gguf_file.h"
#include "strata/report/device_time.h"
#include "strata/report/idle.h"
#include "strata/run/plan_advice.h"
#include "strata/run/planned_run.h"
#include "strata/run/recipe_file.h"
#include "strata/run/recipe_machine.h"
#include "strata/run/resolved_run.h"
#include "strata/schedule/grid.h"

namespace strata {
namespace {

struct PlanArguments {
  RecipeArguments recipe;
  bool estimate = false;
  std::string machine;     // a known GPU or a file; empty: this machine
  std::string convention;  // for bytes per parameter; empty: ours
  bool program = false;
  bool serve = false;
  ServingArguments serving;
  std::string json;
};

void print_programs(const Plan& plan) {
  for (int rank = 0; rank < plan.schedule().num_ranks(); ++rank)
    std::cout << "\nrank " << rank << '\n' << list_actions(plan.schedule().programs[rank]);
}

// Adds where each rank's step time goes, as in the report of a run.
void add_times(nlohmann::json& json, const Plan& plan) {
  const double step = plan.simulation.step_seconds;
  std::vector<std::vector<TraceEvent>> rows;
  std::vector<std::vector<TrackEvent>> tracks;
  for (const RankTimeline& rank : plan.simulation.ranks) {
    rows.push_back(row_of(rank));
    tracks.push_back(tracks_within(rank, step));
  }
  const std::vector<TimeSplit> splits = attribute_time(rows, 0, step, tracks);
  for (std::size_t rank = 0; rank < splits.size(); ++rank) {
    const TimeSums sums = sums_of(splits[rank]);
    const DeviceTime device = device_time(tracks[rank], 0, step);
    json["ranks"][rank]["time"] = {{"work_seconds", sums.work},
                                   {"exposed_communication_seconds", sums.exposed_communication},
                                   {"rank_wait_seconds", sums.rank_waits},
                                   {"memory_wait_seconds", sums.memory_waits},
                                   {"launch_wait_seconds", sums.launch_waits},
                                   {"other_seconds", sums.other}};
    if (plan.costs.launch.kernel > 0)
      json["ranks"][rank]["device_time"] = {
          {"busy_seconds", device.busy},
          {"exposed_communication_seconds", device.exposed_communication},
          {"exposed_copy_seconds", device.exposed_copies},
          {"gap_seconds", device.gaps},
          {"longest_gap_seconds", device.longest_gap}};
  }
}

// Says that the plan assumes more machines, if this one has too few devices for its ranks.
std::string machines_text(const PlannedRun& run, const MachineProfile& machine) {
  const std::int64_t devices = machine.peers.devices;
  if (devices == 0 || run.ranks <= devices) return "";
  return ": " + std::to_string(run.ranks) + " ranks, each on a device of its own, on " +
         std::to_string((run.ranks + devices - 1) / devices) + " machines";
}

// A path with a model, rather than a recipe.
bool is_model(const std::string& path) {
  return std::filesystem::is_directory(path) || is_gguf(path);
}

void run_serving_plan(const PlanArguments& arguments) {
  if (!arguments.json.empty()) require_writable_file(arguments.json, "--json");
  const bool here = arguments.machine.empty();
  const std::string& path = arguments.recipe.path;
  Recipe recipe = is_model(path) ? recipe_of(path, arguments.recipe.overrides)
                                 : text_recipe(arguments.recipe.load());
  const MachineProfile machine =
      here ? this_machine(recipe) : with_device_of(recipe, find_machine(arguments.machine));
  if (!here) recipe = on_machine(std::move(recipe), machine);
  const ServedModel served =
      served_model(std::move(recipe), is_model(path) ? path : "", arguments.serving.weights);
  const ServingForecast forecast = forecast_serving(served, arguments.serving.options(served),
                                                    machine, here && !arguments.estimate);
  std::cout << forecast.text;
  if (!arguments.json.empty()) write_file(arguments.json, forecast.json + "\n");
}

void run_plan(const PlanArguments& arguments) {
  if (arguments.serve) return run_serving_plan(arguments);
  Recipe loaded = arguments.recipe.load();
  if (!arguments.json.empty()) require_writable_file(arguments.json, "--json");
  const bool here = arguments.machine.empty();
  const MachineProfile elsewhere = here ? MachineProfile{} : find_machine(arguments.machine);
  const bool reserves = !here && reserves_host(loaded, elsewhere);
  const ParameterBytes* convention =
      arguments.convention.empty() ? nullptr : &precision_convention(arguments.convention);
  const ResolvedRun resolved =
      here ? resolve_here(std::move(loaded), /*measure=*/!arguments.estimate)
           : resolve(std::move(loaded), elsewhere, convention);
  const Recipe& recipe = resolved.recipe;
  const MachineProfile& machine = resolved.machine;
  if (resolved.search) {
    std::cout << search_text(*resolved.search) << '\n';
    if (here)
      std::cout << "compared by assumed rates, the same in every process"
                << (recipe.device_kind() == DeviceKind::kCuda
                        ? ", on machines with as many GPUs as this one"
                        : "")
                << "; the plan of the first one by this machine's:\n\n";
  }
  if (resolved.micro_batch) std::cout << micro_batch_text(*resolved.micro_batch) << '\n';
  const PlannedRun run = here ? plan_run(resolved, /*probe=*/!arguments.estimate)
                              : plan_run_elsewhere(resolved, convention);
  if (!here) {
    std::cout << "on " << machine.name << machines_text(run, machine) << '\n';
    if (!machine.source.empty())
      std::cout << "seconds    from " << machine.source << " rates, not measured\n";
  }
  if (reserves)
    std::cout << "reserved   " << format_bytes(machine.host.reserve.count) << " of "
              << format_bytes(machine.host.bytes.count)
              << " of host memory for the system and the process (host.reserve)\n";
  std::cout << plan_text(run.plan);
  const bool computes_here = here && recipe.device_kind() == DeviceKind::kCpu;
  if (here && arguments.estimate) std::cout << estimate_text(recipe, machine);
  if (computes_here) {
    std::cout << shared_host_text(run.plan, shared_host(run));
    if (!recipe.task->has_uncounted_memory())
      std::cout << "process    " << process_text(process_bytes(run.plan, shared_host(run))) << '\n';
  }
  const std::vector<TierDepth> depths =
      largest_depths(recipe, machine, convention, run.plan.costs.devices);
  if (!depths.empty())
    std::cout << "depth      " << depths_sentence(depths, recipe.task->depth_field()) << '\n';
  const PlanAppendix appendix = recipe.task->plan_appendix(recipe);
  if (!appendix.text.empty()) std::cout << '\n' << appendix.text;
  const bool measure = here && !arguments.estimate;
  const std::string advice = here ? precision_advice(recipe, measure) : "";
  if (!advice.empty()) std::cout << "precision  " << advice << '\n';
  if (const std::string rate = warmup_advice(recipe); !rate.empty())
    std::cout << "rate       " << rate << '\n';
  if (arguments.program) print_programs(run.plan);
  if (arguments.json.empty()) return;
  nlohmann::json json = to_json(run.plan);
  add_times(json, run.plan);
  json["largest"] = to_json(depths);
  if (computes_here && !recipe.task->has_uncounted_memory())
    json["process"] = to_json(process_bytes(run.plan, shared_host(run)));
  if (!appendix.json.empty()) json[appendix.key] = nlohmann::json::parse(appendix.json);
  write_file(arguments.json, json_text(json, 1) + "\n");
}

}  // namespace

void add_plan_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("plan", "show where the model is cut, what it costs, and when");
  auto arguments = std::make_shared<PlanArguments>();
  arguments->recipe.add_to(*verb);
  verb->add_flag("--estimate", arguments->estimate, "take seconds from FLOPs, measure nothing");
  CLI::Option* machine =
      verb->add_option(
              "--machine", arguments->machine,
              "plan for a GPU that is not here (a100, h100, h200), by published rates, or for "
              "the machine that a file describes; measure nothing")
          ->type_name("NAME|FILE")
          ->check(refuse_empty_path);
  verb->add_option("--convention", arguments->convention,
                   "with --machine: count another system's bytes a parameter, by a name that "
                   "strata size parameters --precision takes")
      ->type_name("NAME")
      ->needs(machine);
  verb->add_flag("--program", arguments->program, "list every rank's actions");
  CLI::Option* serve = verb->add_flag(
      "--serve", arguments->serve,
      "show what `strata serve` needs and reaches with a text recipe, checkpoint, Hugging Face "
      "folder or GGUF file");
  for (CLI::Option* option : arguments->serving.add_to(*verb)) option->needs(serve);
  verb->add_option("--json", arguments->json, "write the plan to this file, too")
      ->type_name("FILE")
      ->check(refuse_empty_path);
  for (const auto& [moved, replacement] :
       {std::pair("--parameters", "strata size parameters COUNT"),
        std::pair("--rows", "strata size embeddings COUNT")})
    verb->add_option_function<std::string>(
            moved,
            [moved, replacement](const std::string&) {
              throw UserError({.operation = "cli.arguments",
                               .where = moved,
                               .what = "this is a verb of its own",
                               .expected = "a recipe",
                               .got = moved,
                               .fix = std::string("run ") + replacement});
            })
        ->group("");  // hidden from the help
  verb->callback([arguments] { run_plan(*arguments); });
}

}  // namespace strata
