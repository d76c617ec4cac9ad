/// The embeddings of a table, as a checkpoint has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata {

struct EmbeddingTable {
  std::string name;
  int width = 0;
  std::vector<std::uint64_t> ids;  ///< ascending
  std::vector<float> values;       ///< [ids, width]
};

}  // namespace strata
