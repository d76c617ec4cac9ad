#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/checkpoint/folder.h"
#include "strata/cli/launched_processes.h"
#include "strata/cli/train_arguments.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

struct LaunchArguments {
  int processes = 2;
  int restarts = 0;
  bool shrink = false;
};

// Goes on from the last checkpoint, if there is one, whatever was resumed before.
void resume_latest(TrainArguments& arguments) {
  const std::string folder = arguments.load().train.checkpoint_folder;
  if (!folder.empty() && !list_checkpoints(folder).empty()) arguments.resume = folder;
}

// With the processes that are left: the most of them that hold whole replicas.
void shrink(int killed, int& processes, TrainArguments& arguments) {
  const auto dp = static_cast<int>(arguments.load().mesh.dp);
  for (int left = processes - killed; left >= 1; --left) {
    if (dp * left % processes != 0) continue;
    const int replicas = dp * left / processes;
    arguments.recipe.overrides.push_back("mesh.dp=" + std::to_string(replicas));
    std::cerr << "launch: going on with " << left << " of " << processes << " processes, mesh.dp "
              << replicas << std::endl;
    processes = left;
    return;
  }
}

void run_launch(LaunchArguments arguments, std::vector<std::string> command) {
  if (command.empty())
    throw UserError({.operation = "cli.launch",
                     .what = "nothing to launch",
                     .expected = "a verb and a recipe",
                     .fix = "strata launch -n 2 train recipe.yaml"});
  for (int restart = 0;; ++restart) {
    const LaunchResult result = launch_processes(arguments.processes, command);
    if (result.exit_code == 0) return;
    // Only what the system did is worth another try.
    if (result.exit_code != 3 || result.interrupted || restart == arguments.restarts)
      throw CLI::RuntimeError(result.exit_code);
    std::cerr << "launch: restart " << restart + 1 << " of " << arguments.restarts << std::endl;
    if (command.front() != "train") continue;
    TrainArguments train = parse_train_command(command);
    if (arguments.shrink && result.killed > 0) shrink(result.killed, arguments.processes, train);
    resume_latest(train);
    command = train.resume_command(train.resume);
  }
}

}  // namespace

void add_launch_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("launch", "start a verb as several processes of this machine");
  auto arguments = std::make_shared<LaunchArguments>();
  verb->add_option("-n,--processes", arguments->processes, "how many; ranks are shared out evenly")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--restarts", arguments->restarts,
                   "after a system error, go on from the last checkpoint so many times")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  verb->add_flag("--shrink", arguments->shrink,
                 "restart without the processes that were killed, with fewer replicas (mesh.dp)");
  verb->prefix_command();
  verb->callback([arguments, verb] { run_launch(*arguments, verb->remaining()); });
}

}  // namespace strata
