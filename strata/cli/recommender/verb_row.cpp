#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/units.h"
#include "strata/cli/arguments.h"
#include "strata/cli/recommender/row_answers.h"
#include "strata/cli/recommender/verbs.h"
#include "strata/run/recommender/row_lookup.h"

namespace strata {
namespace {

std::string numbers_text(const std::vector<float>& numbers) {
  std::string text;
  for (const float number : numbers)
    text += (text.empty() ? "" : " ") + format_double(static_cast<double>(number), 5);
  return text.empty() ? "none" : text;
}

void print(const RowDescription& row) {
  std::cout << "row      " << row.feature << " " << row.id << '\n';
  if (!row.there) {
    std::cout << "there    no: no update had it, or it was evicted\n"
              << "reads as " << numbers_text(row.value) << '\n';
    return;
  }
  std::cout << "tier     " << name_of(row.tier) << (row.candidate ? ", not admitted yet" : "")
            << '\n'
            << "hits     " << row.hits << (row.hits == 1 ? " update" : " updates")
            << ", the last at step " << row.last_update << '\n'
            << "value    " << numbers_text(row.value) << '\n'
            << "state    " << numbers_text(row.state) << '\n';
}

}  // namespace

void add_row_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("row", "show one embedding row of a recommender");
  auto question = std::make_shared<RowQuestion>();
  auto json = std::make_shared<bool>(false);
  verb->add_option("where", question->where,
                   "a checkpoint, the folder that holds several, a recipe, or a server's HOST:PORT "
                   "or unix:PATH")
      ->required()
      ->check(refuse_empty_path);
  verb->add_option("feature", question->feature, "categorical feature, or table")->required();
  verb->add_option("id", question->id, "its number")->required();
  verb->add_flag("--text", question->is_text,
                 "the id is what the log says; the run knows its number");
  verb->add_flag("--json", *json, "one line of JSON");
  verb->add_option("--set", question->overrides, "override a field of the recipe")
      ->allow_extra_args(false)
      ->type_name("FIELD=VALUE");
  verb->callback([question, json] {
    const RowDescription row = find_row(*question);
    if (*json)
      std::cout << json_of(row) << '\n';
    else
      print(row);
  });
}

}  // namespace strata
