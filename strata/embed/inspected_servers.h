/// Reads rows of servers or of their replicas without being a rank of a run.
///
/// A read returns the rows that each server has at that time, whatever version it names. So shards
/// may have different versions; age() states how different.
///
/// Threads  one. An executor for each server waits for it.
/// Errors   SystemError: a server that does not answer in time. UserError: tables or shards that
///          servers do not have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/executor.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/wire/inspection.h"

namespace strata {

/// Versions of rows that were read.
struct RowsAge {
  std::int64_t version = 0;  ///< the lowest one
  std::int64_t newest = 0;   ///< the highest one that a server knew of
};

class InspectedServers final : public RowServers {
 public:
  /// `shards`: of the shards' servers, in their order.
  InspectedServers(std::vector<FeatureSpec> tables,
                   std::vector<std::unique_ptr<RowInspection>> shards);

  std::unique_ptr<PendingRows> read(std::vector<FeatureRead> tables) override;
  /// Of the last read that has been waited for.
  const RowsAge& age() const { return age_; }

  // Not for a reader: InternalError.
  void update(std::int64_t, std::vector<FeatureRows>, double) override;
  void await(std::int64_t) override;
  void save(std::int64_t) override;

 private:
  struct Answer;
  class Pending;
  struct Shard {
    std::unique_ptr<RowInspection> rows;
    Executor executor{{.name = "rows"}};
  };

  void ask(RowInspection& rows, Answer& answer) const;

  const std::vector<FeatureSpec> tables_;
  RowsAge age_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

}  // namespace strata
