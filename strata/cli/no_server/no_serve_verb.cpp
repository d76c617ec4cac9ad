// Stands for cli/server in a program that is built without it (STRATA_SERVER): help does not list
// the verb, and it is refused with the reason.
#include <CLI/CLI.hpp>

#include "strata/base/errors.h"
#include "strata/cli/verbs.h"

namespace strata {

void add_serve_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("serve")->group("");
  verb->set_help_flag();
  verb->prefix_command();
  verb->callback([] {
    throw UserError({.operation = "cli.serve",
                     .where = "strata serve",
                     .what = "this program was built without the server",
                     .expected = "a program with the server",
                     .got = "one that was built with STRATA_SERVER=OFF",
                     .fix = "make build"});
  });
}

}  // namespace strata
