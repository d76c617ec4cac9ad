#include "strata/cli/verbs.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"

namespace strata {

std::vector<CLI::App*> listed_verbs(CLI::App& app) {
  return app.get_subcommands([](CLI::App* verb) { return !verb->get_group().empty(); });
}

void require_verb(CLI::App& app, const std::string& name) {
  const std::vector<CLI::App*> all = app.get_subcommands([](CLI::App*) { return true; });
  for (const CLI::App* verb : all)
    if (verb->get_name() == name) return;
  std::vector<std::string> verbs;
  std::string expected;
  for (const CLI::App* verb : listed_verbs(app)) {
    verbs.push_back(verb->get_name());
    expected += (expected.empty() ? "" : ", ") + verb->get_name();
  }
  const std::string nearest = nearest_name(name, verbs);
  throw UserError(
      {.operation = "cli.arguments",
       .where = name,
       .what = "there is no such verb",
       .expected = expected,
       .fix = nearest.empty() ? "see strata --help" : "did you mean '" + nearest + "'?"});
}

void require_output() {
  if (std::cout.flush()) return;
  throw SystemError({.operation = "cli.output",
                     .where = "standard output",
                     .what = "what the verb printed cannot be written",
                     .fix = "free space on its disk, or send it elsewhere"});
}

}  // namespace strata
