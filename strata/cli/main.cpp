// The program `strata`: reads the command line, runs a verb, turns errors into exit codes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "strata/base/error_transfer.h"
#include "strata/base/errors.h"
#include "strata/cli/standard_streams.h"
#include "strata/cli/verbs.h"

namespace strata {
namespace {

int fail(const std::exception& error) {
  std::cerr << to_error(error).what() << '\n';
  return exit_code(error);
}

// What CLI11 refuses, in our shape. Help and version aren't errors.
int refuse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    app.exit(error);
    require_output();
    return 0;
  }
  return fail(UserError({.operation = "cli.arguments",
                         .what = error.what(),
                         .fix = "see strata --help, or strata VERB --help"}));
}

// CLI11 takes "--" for the end of its own subcommands, too; here it only sets a launched verb
// apart. In the reverse order that it parses in.
std::vector<std::string> arguments_of(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "launch") {
    const auto separator = std::find(arguments.begin(), arguments.end(), "--");
    if (separator != arguments.end()) arguments.erase(separator);
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

int run_verb(int argc, char** argv) {
  CLI::App app("Trains models that are too large for one device.", "strata");
  app.set_version_flag("--version", "strata " STRATA_VERSION);
  app.require_subcommand(1);
  add_plan_verb(app);
  add_train_verb(app);
  add_generate_verb(app);
  add_verify_verb(app);
  add_launch_verb(app);
  add_options_verb(app);
  add_doctor_verb(app);
  try {
    app.parse(arguments_of(argc, argv));
    require_output();
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // a launched process has said why
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
}

int run(int argc, char** argv) {
  open_closed_streams();
  try {
    return run_verb(argc, argv);
  } catch (const std::exception& error) {
    return fail(error);
  }
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::run(argc, argv); }
