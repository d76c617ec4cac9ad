/// Saves, with a checkpoint, the rows that later steps have already read: a run that resumes from
/// the checkpoint uses the same rows, older than the checkpoint, as the uninterrupted run.
///
///     FOLDER/ahead-VERSION-rank-R.rows
///
/// These are the rows of the next staleness - 1 steps. They are found by step, table and id, so the
/// numbers of shards and ranks may change.
///
/// Source   format: docs/formats.md
/// Threads  one rank's.
/// Errors   UserError with the name of a file that is missing, damaged, or of another recipe.
///          SystemError: disk full.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "strata/rowserver/row_servers.h"

namespace strata {

/// Rows of a table (rows.feature) that were read for a step at rows.version.
struct StepRows {
  std::int64_t step = 0;
  FeatureRows rows = {};
};

struct RowsAheadOptions {
  std::string from;  ///< folder to load from; empty: nowhere
  std::string to;    ///< folder to save in; empty: nowhere
  std::uint64_t fingerprint = 0;
  int rank = 0, ranks = 1;
  /// number of newest versions to keep, in addition to the current one; 0: all
  std::int64_t keep = 0;
  std::vector<FeatureSpec> tables;
};

class RowsAhead {
 public:
  explicit RowsAhead(RowsAheadOptions options) : options_(std::move(options)) {}

  /// Returns when the rows are durable.
  void save(std::int64_t version, const std::vector<StepRows>& rows) const;

  /// Returns the rows of all ranks. Every checkpoint has such files, even without rows.
  std::vector<StepRows> load(std::int64_t version) const;

 private:
  RowsAheadOptions options_;
};

}  // namespace strata
