#include "strata/rowserver/wire/shard_inspection.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <iomanip>
#include <sstream>
#include <thread>
#include <type_traits>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/wire/server_metrics.h"

namespace strata {
namespace {

// A rank that lost its stream reconnects within this time.
constexpr std::chrono::milliseconds kRejoining{1000};
// A replica without a stream knows nothing about ranks, and its primary may be starting.
constexpr std::chrono::milliseconds kReconnecting{10'000};
constexpr std::chrono::milliseconds kPoll{50};

RowsDigest current_digest(LiveShard& live) {
  return {.version = live.server->version(), .digest = digest_of(*live.state)};
}

// Runs `make`, whose result or error the promise gets.
template <typename Result, typename Make>
void fulfil(std::promise<Result>& promise, const std::exception_ptr& error, const Make& make) {
  try {
    if (error) std::rethrow_exception(error);
    promise.set_value(make());
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
}

}  // namespace

// A run that begins may replace the rows while a question waits; the question then goes to the new
// rows.
template <typename Question>
auto ShardInspection::ask_live_shard(const Question& question) {
  if (sessions_) sessions_->catch_up();
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(options_.seconds));
  for (;; std::this_thread::sleep_for(kPoll)) {
    try {
      return question(shard_.live(), end);
    } catch (const SystemError& error) {
      if (error.text().operation != "embed.run" || Clock::now() > end || options_.shut_down())
        throw;
    }
  }
}

// `look` sees the rows while no update changes them.
template <typename Look>
auto ShardInspection::between_updates(const Look& look) {
  return ask_live_shard([&](const std::shared_ptr<LiveShard>& live, Clock::time_point) {
    std::promise<std::invoke_result_t<Look, LiveShard&>> promise;
    live->server->inspect([&](const std::exception_ptr& error) {
      fulfil(promise, error, [&] { return look(*live); });
    });
    return promise.get_future().get();
  });
}

RowsDigest ShardInspection::digest() { return between_updates(current_digest); }

RowsDigest ShardInspection::digest_at(std::int64_t version) {
  return ask_live_shard([&](const std::shared_ptr<LiveShard>& live, Clock::time_point end) {
    return digest_of_version(live, version, end);
  });
}

RowsDigest ShardInspection::digest_of_version(const std::shared_ptr<LiveShard>& live,
                                              std::int64_t version, Clock::time_point end) {
  // Shared: the server may reach the version after this function has given up.
  const auto answer = std::make_shared<std::promise<RowsDigest>>();
  std::future<RowsDigest> answered = answer->get_future();
  bool left = false;
  try {
    live->server->at(version, [answer, of = live.get()](const std::exception_ptr& error) {
      fulfil(*answer, error, [of] { return current_digest(*of); });
    });
    if (will_come(version, answered, *live->server, end)) return answered.get();
  } catch (const SystemError& error) {
    if (version <= live->server->version() || error.text().operation != "embed.order") throw;
    // That error is about the order of updates, in which the caller has no part.
    left = true;
  }
  const std::string why = left            ? ", and a rank that trained has left"
                          : ranks_train() ? " yet"
                                          : ", and no trainer is connected";
  throw UserError({.operation = "embed.ask",
                   .what = "there is no such version" + why,
                   .expected = "version " + std::to_string(live->server->version()),
                   .got = "version " + std::to_string(version),
                   .fix = "ask for digest without a version"});
}

// False once no rank is connected and the version has stopped rising.
bool ShardInspection::will_come(std::int64_t version, const std::future<RowsDigest>& answered,
                                const ShardServer& server, Clock::time_point end) const {
  Clock::time_point moved = Clock::now();
  for (std::int64_t before = server.version(); before < version;) {
    if (answered.wait_for(kPoll) == std::future_status::ready) return true;
    const std::int64_t current = server.version();
    const Clock::time_point now = Clock::now();
    if (ranks_train() || current != before) moved = now;
    const bool disconnected = replica_ && !replica_->counts().following;
    if (now > end || now - moved > (disconnected ? kReconnecting : kRejoining)) return false;
    before = current;
  }
  return true;  // reached: computing the digest of many rows takes a while
}

bool ShardInspection::ranks_train() const {
  if (sessions_) return sessions_->counts().connected_ranks > 0;
  const ReplicaCounts counts = replica_->counts();
  const bool late = shard_.live()->server->version() < counts.primary_version;
  return counts.following && (counts.primary_trains || late);
}

RowDescription ShardInspection::row(const std::string& feature, std::uint64_t id) {
  const int index = feature_named(feature);
  require_own(index, id);
  return between_updates([&](LiveShard& live) { return live.state->describe(index, id); });
}

RowValues ShardInspection::rows(const std::string& feature, const std::vector<std::uint64_t>& ids) {
  const int index = feature_named(feature);
  if (ids.size() > kMostInspectedIds)
    throw UserError({.operation = "embed.ask",
                     .what = "too many rows are requested at once",
                     .expected = "at most " + std::to_string(kMostInspectedIds),
                     .got = std::to_string(ids.size()),
                     .fix = "request the others in another call"});
  for (const std::uint64_t id : ids) require_own(index, id);
  const int width = features()[static_cast<std::size_t>(index)].width;
  return between_updates([&](LiveShard& live) {
    RowValues read{.version = live.server->version(),
                   .width = width,
                   .values = std::vector<float>(ids.size() * static_cast<std::size_t>(width))};
    live.state->rows().read(index, ids, read.values);
    return read;
  });
}

HotRows ShardInspection::hot(const std::string& feature, int count) {
  const int index = feature_named(feature);
  const int most = std::clamp(count, 0, static_cast<int>(kMostInspectedIds));
  return between_updates([&](LiveShard& live) { return live.state->hottest(index, most); });
}

// No update waits for these counts.
std::vector<TableCounts> ShardInspection::sizes() {
  return ask_live_shard([&](const std::shared_ptr<LiveShard>& live, Clock::time_point) {
    std::vector<TableCounts> all;
    for (const FeatureCounts& counts : live->state->counts())
      all.push_back({features()[all.size()].name, counts});
    return all;
  });
}

std::optional<ReplicaLag> ShardInspection::lag() {
  if (!replica_) return std::nullopt;
  const ReplicaCounts counts = replica_->counts();
  return ReplicaLag{.version = shard_.live()->server->version(),
                    .primary = counts.primary_version,
                    .following = counts.following};
}

std::uint64_t ShardInspection::run() {
  if (!sessions_) throw replica_takes_no_updates(options_.primary);
  return sessions_->run_to_follow();
}

std::string ShardInspection::metrics() {
  ServerMetrics of{.shard = shard_.options().shard,
                   .shards = shard_.options().shards,
                   .gate = shard_.live()->server->counts(),
                   .sessions = sessions_ ? sessions_->counts() : SessionCounts{},
                   .features = features(),
                   .durable_version = shard_.log().durable(),
                   .log_bytes = shard_.log().bytes(),
                   .compactions = shard_.compactions()};
  if (replica_) of.replica = replica_->counts();
  struct Rows {
    std::vector<std::int64_t> counts;
    std::int64_t bytes = 0;
  };
  Rows rows = between_updates([](LiveShard& live) {
    Rows counted{.counts = {}, .bytes = live.state->bytes()};
    for (const FeatureCounts& feature : live.state->counts())
      counted.counts.push_back(feature.rows + feature.cold_rows);
    return counted;
  });
  of.rows = std::move(rows.counts), of.memory_bytes = rows.bytes;
  return prometheus_text(of);
}

int ShardInspection::feature_named(const std::string& name) const {
  std::vector<std::string> names;
  for (const FeatureSpec& feature : features()) {
    if (feature.name == name) return static_cast<int>(names.size());
    names.push_back(feature.name);
  }
  const std::string nearest = nearest_name(name, names);
  std::ostringstream fix;
  fix << "ask for " << std::quoted(nearest.empty() ? names.front() : nearest);
  throw UserError({.operation = "embed.ask",
                   .where = "feature " + quote(name),
                   .what = "the server has no such feature",
                   .expected = nearest.empty() ? names.front() : nearest,
                   .got = quote(name),
                   .fix = fix.str()});
}

void ShardInspection::require_own(int feature, std::uint64_t id) const {
  const int shard = shard_of(feature, id, shard_.options().shards);
  if (shard == shard_.options().shard) return;
  throw UserError({.operation = "embed.ask",
                   .where = "feature " + quote(features()[static_cast<std::size_t>(feature)].name),
                   .what = "another server has the row of id " + std::to_string(id),
                   .expected = "shard " + std::to_string(shard),
                   .got = "shard " + std::to_string(shard_.options().shard),
                   .fix = "ask that one"});
}

}  // namespace strata
