/// Keeps, beside a checkpoint, the rows that steps after it have read before it: a run that resumes there
/// has the rows that the uninterrupted one has, older than the checkpoint though they are.
///
///     FOLDER/ahead-VERSION-rank-R.rows
///
/// They are few: of staleness - 1 steps, what these have read. They are found by step, table and id, so
/// that neither the number of shards nor that of ranks has to be the same.
///
/// Source   format: docs/formats.md
/// Threads  a rank's, for itself.
/// Errors   UserError that names the file: missing, damaged, of another recipe.
///          SystemError: disk full.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "strata/rowserver/row_servers.h"

namespace strata {

/// Rows of a table (rows.feature), read for a step at rows.version.
struct StepRows {
  std::int64_t step = 0;
  FeatureRows rows = {};
};

struct RowsAheadOptions {
  std::string from;  ///< folder to load from; empty: nowhere
  std::string to;    ///< folder to save in; empty: nowhere
  std::uint64_t fingerprint = 0;
  int rank = 0, ranks = 1;
  std::int64_t keep = 0;  ///< versions, and the newest one; 0: all
  std::vector<FeatureSpec> tables;
};

class RowsAhead {
 public:
  explicit RowsAhead(RowsAheadOptions options) : options_(std::move(options)) {}

  /// Returns when they are durable.
  void save(std::int64_t version, const std::vector<StepRows>& rows) const;

  /// Those of all ranks. Every checkpoint has such files, be it without rows.
  std::vector<StepRows> load(std::int64_t version) const;

 private:
  RowsAheadOptions options_;
};

}  // namespace strata
