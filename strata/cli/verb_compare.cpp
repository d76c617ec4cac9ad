#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/error_source.h"
#include "strata/cli/verbs.h"
#include "strata/clock/run_comparison.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr ErrorSource kCompareErrors{"cli.compare"};

struct CompareArguments {
  std::string first, second;
};

// The files of a folder whose names end with .json, or one file.
std::vector<RunFile> read_runs(const std::string& path) {
  std::error_code none;
  if (!fs::is_directory(path, none)) return {RunFile::read(path)};
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  if (files.empty())
    throw kCompareErrors.user(path, "the folder has no runs", "files of strata train --run-json",
                              "none", "name a folder with FILE.json");
  std::ranges::sort(files);
  std::vector<RunFile> runs;
  for (const std::string& file : files) runs.push_back(RunFile::read(file));
  return runs;
}

}  // namespace

void add_compare_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("compare", "compare the times of two sets of runs");
  auto arguments = std::make_shared<CompareArguments>();
  verb->add_option("first", arguments->first, "a file of --run-json, or a folder of them")
      ->required();
  verb->add_option("second", arguments->second, "the same of the other set")->required();
  verb->callback([arguments] {
    std::cout << text_of(compare_runs(read_runs(arguments->first), read_runs(arguments->second)),
                         arguments->first, arguments->second);
  });
}

}  // namespace strata
