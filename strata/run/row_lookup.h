/// Finds what is known of one row of a recommender, wherever its rows live: beside a checkpoint, or on
/// servers that run.
///
/// Cost    of saved rows one pass over the snapshot of a shard, in the memory of one row.
/// Errors  UserError: no such feature, no id, nothing saved, a text that the feature makes no id of;
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
  std::vector<std::string> overrides;  ///< of the recipe
  std::string feature;                 ///< or a table
  std::string id;
  bool is_text = false;  ///< `id` is what the log says
};

RowDescription find_row(const RowQuestion& question);

}  // namespace strata
