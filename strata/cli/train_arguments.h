/// Reads what `strata train` is told on the command line, and writes the command that goes on.
#pragma once

#include <string>
#include <vector>

#include "strata/cli/recipe_arguments.h"

namespace strata {

struct TrainArguments {
  RecipeArguments recipe;
  std::string resume, from, metrics, trace, report;

  void add_to(CLI::App& verb);

  /// The recipe. What neither it nor --set says about model and tokenizer is taken from --from, or
  /// else from the checkpoint of --resume.
  Recipe load() const;

  /// The words behind "strata" that go on from `checkpoint` and are otherwise the same.
  std::vector<std::string> resume_command(const std::string& checkpoint) const;
};

/// Of a command: "train" and what stands behind it.
/// Errors  UserError, as for a command line.
TrainArguments parse_train_command(const std::vector<std::string>& command);

/// Words as a shell reads them.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace strata
