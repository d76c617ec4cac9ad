// The program `strata`: reads the command line, runs a verb, turns errors into exit codes.
//
// First, main() opens closed standard streams: otherwise a file of the program would get the free
// descriptor and receive printed output. Output that is lost, as on a full disk, is reported only
// when it is flushed, so the program flushes last.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/cli/help.h"
#include "strata/cli/reported_once.h"
#include "strata/cli/verbs.h"
#include "strata/cli/version.h"

namespace strata {
namespace {

// Opens the closed ones of descriptors 0 to 2 on /dev/null.
void open_closed_streams() {
  // In ascending order: open() takes the lowest number that is free.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", O_RDWR) < 0) return;
}

int fail(const std::exception& error) {
  report_once(to_error(error).what());
  return exit_code(error);
}

// Fields of a recipe are no options: `--steps 10` becomes `--set train.steps=10`.
std::string fix_of_extra(const CLI::App& verb, const std::string& extra) {
  const std::string otherwise = "see strata " + verb.get_name() + " --help";
  if (!extra.starts_with("--")) return otherwise;
  const std::string name = extra.substr(2, extra.find('=') - 2);
  std::vector<std::string> options;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& known : option->get_lnames()) options.push_back(known);
  const std::string option = nearest_name(name, options);
  if (!option.empty()) return "did you mean '--" + option + "'?";
  const std::string field =
      verb.get_option_no_throw("--set") ? nearest_path(name, known_fields()) : "";
  return field.empty() ? otherwise
                       : "write --set " + field + "=VALUE, as for every field of a recipe";
}

// In the order of the command line.
UserError refuse_extras(const CLI::App& verb) {
  const std::vector<std::string> extras = verb.remaining();
  std::string all;
  for (const std::string& extra : extras) all += (all.empty() ? "" : " ") + extra;
  return UserError({.operation = "cli.arguments",
                    .where = "strata " + verb.get_name(),
                    .what = "it does not take " + quote(all),
                    .fix = fix_of_extra(verb, extras.front())});
}

// Prints a refusal of CLI11 in our shape. Help and version are no errors.
int refuse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    app.exit(error);
    require_output();
    return 0;
  }
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError))
    for (const CLI::App* verb : app.get_subcommands())
      if (!verb->remaining().empty()) return fail(refuse_extras(*verb));
  return fail(UserError({.operation = "cli.arguments",
                         .what = error.what(),
                         .fix = "see strata --help, or strata VERB --help"}));
}

// CLI11 would also end its own subcommands at "--"; here "--" only separates a launched verb.
// Returned in reverse order, because CLI11 parses from the back.
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
  CLI::App app("Trains and serves models that are too large for one device.", "strata");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "print this");
  app.set_version_flag("--version", std::string("strata ") + kVersion, "print the version");
  app.require_subcommand(1);
  add_plan_verb(app);
  add_size_verb(app);
  add_claim_verb(app);
  add_train_verb(app);
  add_evaluate_verb(app);
  add_generate_verb(app);
  add_serve_verb(app);
  add_verify_verb(app);
  add_launch_verb(app);
  add_compare_verb(app);
  add_options_verb(app);
  add_doctor_verb(app);
  add_recommender_verbs(app);
  for (CLI::App* verb : listed_verbs(app)) verb->group("Verbs");
  std::vector<std::string> arguments = arguments_of(argc, argv);
  if (arguments.empty()) {
    std::cout << app.help();
    require_output();
    return 0;
  }
  if (!arguments.back().starts_with("-")) require_verb(app, arguments.back());
  try {
    app.parse(std::move(arguments));
    require_output();
    return 0;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();  // a launched process has printed the reason
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
}

int run(int argc, char** argv) {
  open_closed_streams();
  // A write beyond the limit on file sizes (ulimit -f) then fails instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run_verb(argc, argv);
  } catch (const std::exception& error) {
    return fail(error);
  }
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::run(argc, argv); }
