/// Holds the options of embeddings in a recipe: where rows are stored, how stale they may be read,
/// and the properties of a feature's rows.
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

/// Which parts of a model may be trained with weights that lack the latest updates.
enum class EmbeddingMode : std::uint8_t {
  kSynchronous,  ///< none: staleness is 1
  kHybrid,       ///< the rows, but not the dense net
  kAsynchronous  ///< rows and the dense net, whose gradients are applied as many steps late
};
const char* name_of(EmbeddingMode mode);

/// The rows of one table. The run's section sets the defaults; a feature's section overrides them.
struct RowOptions {
  std::string table;  ///< features with the same name share a table; empty: a table of its own
  std::int64_t staleness = 1;  ///< 1: a read includes every update
  RowInit init = {};
  RowOptimizerOptions optimizer = {};
  RowPrecision precision = RowPrecision::kFp32;
  RowAdmission admission = {};
  RowEviction eviction = {};
};

struct EmbeddingOptions {
  EmbeddingMode mode = EmbeddingMode::kHybrid;
  std::vector<std::string> servers = {"local"};  ///< or one address per shard
  std::int64_t shards = 1;                       ///< number of local shards
  RowOptions rows;
  WireOptions wire;
  Bytes memory;        ///< for the rows of one shard; 0: no limit
  std::string cold;    ///< folder for rows that do not fit in memory; empty: they are dropped
  std::string folder;  ///< where shards store log and snapshots; empty: nowhere
  /// a resumed run reads the rows of its checkpoint, not those of rows/ahead-*
  bool reread = false;
  Bytes log_limit{kDefaultLogLimit};  ///< of a server's log; 0: none

  bool is_local() const { return servers.size() == 1 && servers[0] == "local"; }
};

/// Describes the properties of rows, without staleness, which belongs to the reader.
void describe_rows(OptionSet& set, const std::string& prefix, RowOptions& options);
FeatureSpec feature_spec(const std::string& name, std::int64_t width, const RowOptions& options);
void describe(OptionSet& set, const std::string& prefix, EmbeddingOptions& options);

/// Options of one feature: `kept` is the feature's section, which overrides `defaults`.
RowOptions row_options(const RowOptions& defaults, const YamlSection& kept);

}  // namespace strata
