// Stands for cli/recommender in a program that is built without it (cmake/tasks.cmake): help does
// not list its verbs and options, and each of the verbs is refused with the reason.
#include <CLI/CLI.hpp>
#include <string>

#include "strata/cli/server/serving_kind_makers.h"
#include "strata/cli/verbs.h"
#include "strata/task/kinds/kinds.h"

namespace strata {
namespace {

void add_refused(CLI::App& app, const std::string& name) {
  CLI::App* verb = app.add_subcommand(name)->group("");
  verb->set_help_flag();
  verb->prefix_command();
  verb->callback([name] { refuse_task_not_built("recommender", "strata " + name); });
}

}  // namespace

void add_recommender_verbs(CLI::App& app) {
  for (const char* name : {"convert", "embed-server", "row"}) add_refused(app, name);
  add_refused(*app.get_subcommand("size"), "embeddings");
}

MakeServingKind recommender_serving() { return nullptr; }

}  // namespace strata
