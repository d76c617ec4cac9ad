/// Reads what verbs are told on the command line, and writes the command that goes on from a
/// checkpoint.
///
/// Errors  UserError, as for a command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "strata/run/recipe_file.h"

namespace strata {

/// For options that name a file or folder. An empty one is most likely a shell variable that is not
/// set: doing without the option would start a long run anew, or lose its results.
inline const CLI::Validator refuse_empty_path(
    [](const std::string& path) { return path.empty() ? std::string("the path is empty") : ""; },
    "");

/// For numbers of `least` or more, and from `least` to `most`. They say nothing in help: sentences do.
CLI::Validator at_least(double least);
CLI::Validator between(double least, double most);

/// For seeds: CLI11 would take -1 for the largest.
CLI::Validator seed_number();

/// Refuses a folder that cannot be made or written to; makes none. `field` names it in errors.
void require_writable_folder(const std::string& path, const std::string& field);

/// What every verb with a recipe takes: the file and `--set`.
struct RecipeArguments {
  std::string path;
  std::vector<std::string> overrides;

  void add_to(CLI::App& verb);
  std::string text() const;  ///< "recipes/tiny.yaml --set train.steps=10"
  /// `defaults`: what holds unless the recipe says otherwise.
  Recipe load(const RecipeDefaults& defaults = nullptr) const {
    return load_recipe(path, overrides, defaults);
  }
};

struct TrainArguments {
  RecipeArguments recipe;
  std::string resume, from, metrics, trace, report;
  bool importance = false;

  void add_to(CLI::App& verb);

  /// The recipe. What neither it nor --set says about model and tokenizer is taken from --from, or
  /// else from the checkpoint of --resume; what they do not say about the optimizer, from the checkpoint
  /// of --resume.
  Recipe load() const;

  /// The words behind the program that go on from `checkpoint` and are otherwise the same.
  std::vector<std::string> resume_command(const std::string& checkpoint) const;
};

/// Of a command: "train" and what stands behind it.
TrainArguments parse_train_command(const std::vector<std::string>& command);

/// Words as a shell reads them.
std::string shell_text(const std::vector<std::string>& words);

/// What stands between the program and a verb where `strata launch` has started this process: "launch -n 4".
inline constexpr const char* kLauncherVariable = "STRATA_LAUNCHER";

/// The command that starts this program with another verb and its words as it was started itself: with its
/// launcher, if it has one.
std::string command_text(const std::vector<std::string>& verb);

}  // namespace strata
