/// Looks up one row of a recommender, next to a checkpoint or on running servers.
///
/// Cost    for saved rows one pass over the snapshot of a shard, with memory for one row.
/// Errors  UserError: an unknown feature or id, no saved rows, a text that is no id of the feature;
///         SystemError: a server that does not answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/rowserver/rows/shard_state.h"
#include "strata/run/recipe_file.h"

namespace strata {

struct RowQuestion {
  std::string
      where;  ///< a checkpoint, a folder that holds several, a recipe, or HOST:PORT or unix:PATH
  std::vector<std::string> overrides;  ///< overrides of the recipe
  std::string feature;                 ///< name of a feature or table
  std::string id;
  bool is_text = false;  ///< `id` is a text of the log
};

RowDescription find_row(const RowQuestion& question);

}  // namespace strata
