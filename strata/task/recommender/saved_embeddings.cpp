#include "strata/task/recommender/saved_embeddings.h"

#include <algorithm>

#include "strata/base/error_source.h"
#include "strata/checkpoint/reader.h"
#include "strata/embed/saved_rows.h"
#include "strata/rowserver/rows/row_table_state.h"

namespace strata {

std::vector<EmbeddingTable> saved_embeddings(const RecommenderFields& fields, const Recipe& recipe,
                                             const std::string& checkpoint) {
  constexpr ErrorSource kErrors{"task.embeddings"};
  if (!fields.embedding.is_local())
    throw kErrors.user(checkpoint, "servers keep the embeddings of this model",
                       "rows next to the checkpoint",
                       std::to_string(fields.embedding.servers.size()) + " servers",
                       "ask a server for a row: strata row ADDRESS TABLE ID");
  const std::vector<FeatureSpec> specs = worker_options(fields).tables;
  const auto seed = static_cast<std::uint64_t>(recipe.train.seed);
  const auto state = make_row_table_state(specs, {.seed = seed});
  const std::int64_t version = CheckpointReader::open(checkpoint).manifest().step;
  SavedRows(saved_rows_folder(fields, checkpoint), fingerprint_of(specs, seed), 0)
      .load(version, 0, 1, *state);
  std::vector<EmbeddingTable> tables;
  for (const FeatureSpec& spec : specs) tables.push_back({.name = spec.name, .width = spec.width});
  state->write([&](const StateRecord& record) {
    if (record.kind < kOfShard)
      tables[static_cast<std::size_t>(record.feature)].ids.push_back(record.id);
  });
  for (std::size_t t = 0; t < tables.size(); ++t) {
    EmbeddingTable& table = tables[t];
    std::ranges::sort(table.ids);
    std::vector<std::uint64_t> rows;
    for (const std::uint64_t id : table.ids) {
      if (!rows.empty() && rows.back() == id) continue;  // an id may have several records
      const RowDescription row = state->describe(static_cast<int>(t), id);
      if (!row.there || row.candidate) continue;
      rows.push_back(id);
      table.values.insert(table.values.end(), row.value.begin(), row.value.end());
    }
    table.ids = std::move(rows);
  }
  return tables;
}

}  // namespace strata
