/// Reads the options that verbs share, and writes the command that resumes a run from a checkpoint.
///
/// Errors  UserError: options that are missing, unknown or out of range.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "strata/run/recipe_file.h"
#include "strata/transport/server_address.h"

namespace strata {

/// For options that name a file or folder. An empty path is most likely a shell variable that is
/// not set: ignoring the option would restart a long run, or lose its results.
inline const CLI::Validator refuse_empty_path(
    [](const std::string& path) { return path.empty() ? std::string("the path is empty") : ""; },
    "");

/// For numbers of `least` or more, or from `least` to `most`. They add nothing to the help text.
CLI::Validator at_least(double least);
CLI::Validator between(double least, double most);

/// For seeds: CLI11 would parse -1 as the largest seed.
CLI::Validator seed_number();

/// The address HOST:PORT of an option; port 0 is any free one. Refuses another form.
ServerAddress tcp_address(const std::string& text, const std::string& option,
                          const std::string& example);

/// The arguments of every verb with a recipe: the file, `--set` and `--model`.
struct RecipeArguments {
  std::string path;  ///< empty: an empty recipe, for `model`
  std::vector<std::string> overrides = {};
  std::string model = {};  ///< file of torch.export that the run shall train; empty: the recipe's

  void add_to(CLI::App& verb);
  std::vector<std::string> words() const;  ///< {"recipes/tiny.yaml", "--set", "train.steps=10"}
  std::string text() const;                ///< the same as shell input, the path as it is
  /// `defaults` apply unless the recipe overrides them.
  Recipe load(const RecipeDefaults& defaults = nullptr) const;
};

struct TrainArguments {
  RecipeArguments recipe;
  std::string resume, from, metrics, trace, report;
  std::string target;                ///< train.target
  std::string mllog, run_json;       ///< files of the run's clock
  std::string benchmark = "strata";  ///< that the log names
  bool importance = false;

  void add_to(CLI::App& verb);

  /// The recipe. Model and tokenizer that neither the recipe nor --set names come from --from, or
  /// else from the checkpoint of --resume; optimizer fields that they do not name, from the
  /// checkpoint of --resume.
  Recipe load() const;

  /// The words after the program's name that resume from `checkpoint` and are otherwise the same.
  std::vector<std::string> resume_command(const std::string& checkpoint) const;
};

/// Parses a command: "train" and its words.
TrainArguments parse_train_command(const std::vector<std::string>& command);

/// The words as one line of shell input.
std::string shell_text(const std::vector<std::string>& words);

/// Names the variable with the words of the `strata launch` that started this process: "launch -n
/// 4".
inline constexpr const char* kLauncherVariable = "STRATA_LAUNCHER";

/// The command that starts this program with another verb, through the same launcher, if there is
/// one.
std::string command_text(const std::vector<std::string>& verb);

}  // namespace strata
