/// Answers questions about the rows of this process's shard, of a server or of a replica.
///
/// Threads  any.
/// Errors   as inspection.h.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/rowserver/shard/persistent_shard.h"
#include "strata/rowserver/wire/inspection.h"
#include "strata/rowserver/wire/replica.h"
#include "strata/rowserver/wire/shard_sessions.h"

namespace strata {

class ShardInspection : public RowInspection {
 public:
  struct Options {
    double seconds = 50;              ///< longest wait for a version
    std::string primary = {};         ///< the server that a replica follows
    std::function<bool()> shut_down;  ///< ends every wait
  };

  /// Either `sessions` or `replica` is null. All of them outlive this object.
  ShardInspection(PersistentShard& shard, ShardSessions* sessions, Replica* replica,
                  Options options)
      : shard_(shard), sessions_(sessions), replica_(replica), options_(std::move(options)) {}

  std::string metrics() override;
  RowsDigest digest() override;
  RowsDigest digest_at(std::int64_t version) override;
  RowDescription row(const std::string& feature, std::uint64_t id) override;
  RowValues rows(const std::string& feature, const std::vector<std::uint64_t>& ids) override;
  HotRows hot(const std::string& feature, int count) override;
  std::vector<TableCounts> sizes() override;
  std::optional<ReplicaLag> lag() override;
  std::uint64_t run() override;

  /// Whether ranks train with this server, or with the primary of this replica.
  bool ranks_train() const;

 private:
  using Clock = std::chrono::steady_clock;
  template <typename Question>
  auto ask_live_shard(const Question& question);
  template <typename Look>
  auto between_updates(const Look& look);
  RowsDigest digest_of_version(const std::shared_ptr<LiveShard>& live, std::int64_t version,
                               Clock::time_point end);
  bool will_come(std::int64_t version, const std::future<RowsDigest>& answered,
                 const ShardServer& server, Clock::time_point end) const;
  int feature_named(const std::string& name) const;
  void require_own(int feature, std::uint64_t id) const;
  const std::vector<FeatureSpec>& features() const { return shard_.options().features; }

  PersistentShard& shard_;
  ShardSessions* const sessions_;
  Replica* const replica_;
  const Options options_;
};

}  // namespace strata
