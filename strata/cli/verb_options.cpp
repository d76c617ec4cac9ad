#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "strata/cli/verbs.h"
#include "strata/plan/machine_profile.h"
#include "strata/run/recipe_file.h"
#include "strata/task/kinds/kinds.h"

namespace strata {
namespace {

std::string machine_fields_table() {
  MachineProfile machine;
  OptionSet set;
  describe(set, machine);
  return set.to_table();
}

}  // namespace

std::vector<std::string> known_fields() { return recipe_fields(); }

void add_options_verb(CLI::App& app) {
  CLI::App* verb =
      app.add_subcommand("options", "list every field of a recipe and of a machine's file");
  auto task = std::make_shared<std::string>();
  std::string names;
  for (const TaskKind& kind : task_kinds()) names += (names.empty() ? "" : ", ") + kind.name;
  verb->add_option("task", *task, "list the fields of one task: " + names);
  verb->callback([task] {
    std::cout << recipe_options_table(*task);
    if (task->empty())
      std::cout << "\nFields of a machine's file (plan --machine FILE):\n\n"
                << machine_fields_table();
  });
}

}  // namespace strata
