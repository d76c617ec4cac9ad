#include <CLI/CLI.hpp>

#include "strata/cli/recommender/verbs.h"
#include "strata/cli/verbs.h"

namespace strata {

void add_recommender_verbs(CLI::App& app) {
  add_convert_verb(app);
  add_embed_server_verb(app);
  add_row_verb(app);
  add_embedding_size(*app.get_subcommand("size"));
}

}  // namespace strata
