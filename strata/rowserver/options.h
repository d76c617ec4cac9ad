/// Holds what a recipe says of embeddings: where their rows live, how stale they may be read, and what a
/// feature's rows are like.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/options.h"
#include "strata/base/units.h"
#include "strata/rowserver/codec/wire_values.h"
#include "strata/rowserver/feature.h"
#include "strata/rowserver/shard/update_log.h"

namespace strata {

/// What of a model may be trained with weights that lack the last updates.
enum class EmbeddingMode : std::uint8_t {
  kSynchronous,  ///< nothing: staleness is 1
  kHybrid,       ///< rows; the dense net never
  kAsynchronous  ///< the dense net, too: its gradients are applied as many steps late
};
const char* name_of(EmbeddingMode mode);

/// Of the rows of one table; the run's section gives the defaults, a feature's its own.
struct RowOptions {
  std::string table;           ///< features that name the same share it; empty: one of its own
  std::int64_t staleness = 1;  ///< 1: every update is there
  RowInit init = {};
  RowOptimizerOptions optimizer = {};
  RowPrecision precision = RowPrecision::kFp32;
  RowAdmission admission = {};
  RowEviction eviction = {};
};

struct EmbeddingOptions {
  EmbeddingMode mode = EmbeddingMode::kHybrid;
  std::vector<std::string> servers = {"local"};  ///< or addresses, one a shard
  std::int64_t shards = 1;                       ///< of local servers
  RowOptions rows;
  WireOptions wire;
  Bytes memory;         ///< of a shard's rows; 0: no limit
  std::string cold;     ///< folder for rows that memory has no room for; empty: they are forgotten
  std::string folder;   ///< where shards keep their log and snapshots; empty: nowhere
  bool reread = false;  ///< a resumed run reads rows of its checkpoint, not those of rows/ahead-*
  Bytes log_limit{kDefaultLogLimit};  ///< of a server's log; 0: none

  bool is_local() const { return servers.size() == 1 && servers[0] == "local"; }
};

/// What rows are, wherever they are read from: not how stale they may be.
void describe_rows(OptionSet& set, const std::string& prefix, RowOptions& options);
FeatureSpec feature_spec(const std::string& name, std::int64_t width, const RowOptions& options);
void describe(OptionSet& set, const std::string& prefix, EmbeddingOptions& options);

/// The same for one feature, where `kept` is what its section says otherwise.
RowOptions row_options(const RowOptions& defaults, const YamlSection& kept);

}  // namespace strata
