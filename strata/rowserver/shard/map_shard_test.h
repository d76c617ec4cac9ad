// Shards whose rows are in plain maps, for tests.
#pragma once

#include <memory>
#include <string>

#include "strata/rowserver/shard/map_row_store_test.h"
#include "strata/rowserver/shard/persistent_shard.h"

namespace strata {

inline std::uint64_t digest_of(const MapRowStore::Rows& rows) {
  MapShardState state;
  state.store.set_rows(rows);
  return digest_of(static_cast<ShardState&>(state));
}

inline PersistentShardOptions options_for_test(const std::string& folder, int ranks = 1) {
  PersistentShardOptions options;
  options.folder = folder;
  options.features = features_for_test();
  options.ranks = ranks;
  return options;
}

inline MakeShardState make_map_state() {
  return [] { return std::make_unique<MapShardState>(); };
}

inline UpdatePart part_for_test(int rank, std::int64_t version) {
  return {.gradients = gradients_for_test(rank, version, version - 1),
          .rate_factor = kRateFactorForTest,
          .wire = {}};
}

inline std::uint64_t digest(PersistentShard& shard) { return digest_of(*shard.live()->state); }

}  // namespace strata
