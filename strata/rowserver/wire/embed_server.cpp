#include "strata/rowserver/wire/embed_server.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/rowserver/row_servers.h"
#include "strata/rowserver/rows/row_table_state.h"
#include "strata/rowserver/shard/persistent_shard.h"
#include "strata/rowserver/wire/grpc_client.h"
#include "strata/rowserver/wire/grpc_server.h"
#include "strata/rowserver/wire/replica.h"
#include "strata/rowserver/wire/shard_inspection.h"
#include "strata/rowserver/wire/shard_sessions.h"
#include "strata/rowserver/wire/update_stream.h"

namespace strata {
namespace {

PersistentShardOptions shard_options(const ServerOptions& options) {
  PersistentShardOptions of;
  of.folder = options.folder;
  of.features = options.features;
  of.seed = options.seed;
  of.shard = options.shard, of.shards = options.shards, of.ranks = options.ranks;
  of.sync = options.sync;
  of.kept_snapshots = options.kept_snapshots;
  of.log_limit = options.log_limit;
  of.from = options.from;
  return of;
}

MakeShardState make_table(const ServerOptions& options) {
  RowTableOptions table;
  table.seed = options.seed;
  table.memory_bytes = options.memory_bytes;
  table.cold = options.cold_folder;
  return [features = options.features, table] { return make_row_table_state(features, table); };
}

std::string from_to(std::int64_t least, std::int64_t most) {
  return std::to_string(least) + " to " + std::to_string(most);
}

void check(const ServerOptions& options) {
  constexpr ErrorSource kErrors{"embed.server"};
  if (options.features.empty())
    throw kErrors.user("--features", "no feature has rows", "one feature at least", "none",
                       "name a recipe, or a file with features");
  if (options.shards < 1 || options.shards > kMostShards)
    throw kErrors.user("--shards", "there is no such number of servers", from_to(1, kMostShards),
                       std::to_string(options.shards), "set --shards to the number of servers");
  if (options.shard < 0 || options.shard >= options.shards)
    throw kErrors.user("--shard", "there is no such shard", from_to(0, options.shards - 1),
                       std::to_string(options.shard), "count shards from 0");
  if (options.ranks < 1 || options.ranks > kMostRanks)
    throw kErrors.user("--ranks", "there is no such number of ranks", from_to(1, kMostRanks),
                       std::to_string(options.ranks),
                       "set --ranks to the replicas that train (mesh.dp)");
  if (options.folder.empty())
    throw kErrors.user("--folder", "rows have no folder", "a folder", "none",
                       "pass --folder FOLDER");
  if (options.kept_snapshots < 2)
    throw kErrors.user(
        "--keep", "the snapshot of the last checkpoint would go before the next one is written",
        "2 kept snapshots or more", std::to_string(options.kept_snapshots), "pass --keep 2");
  if (options.memory_bytes < 0)
    throw kErrors.user("--memory", "rows have no such memory", "0 or more bytes",
                       std::to_string(options.memory_bytes),
                       "pass --memory 2GiB, or leave it out: no limit");
  if (options.log_limit < 0)
    throw kErrors.user("--log-limit", "the log has no such limit", "0 or more bytes",
                       std::to_string(options.log_limit), "pass --log-limit 4GiB, or 0: no limit");
  if (!options.follow.empty() && !options.from.empty())
    throw kErrors.user("--from", "a replica has its rows from the server that it follows",
                       "no other folders", options.from.front(), "leave --from out");
}

}  // namespace

struct EmbedServer::Parts {
  explicit Parts(ServerOptions input)
      : options((check(input), std::move(input))),
        rows(shard_options(options), make_table(options)),
        sessions(options.follow.empty() ? std::make_unique<ShardSessions>(rows) : nullptr),
        replica(options.follow.empty() ? nullptr : make_replica()),
        inspection(rows, sessions.get(), replica.get(),
                   {.seconds = options.ask_seconds,
                    .primary = options.follow,
                    .shut_down = [this] { return ended(); }}),
        server(options.listen, options.access, inspection,
               {.session = [this](FrameStream& stream) { serve(stream); },
                .follow =
                    [this](const FollowRequest& request, FrameStream& stream) {
                      serve_updates(
                          rows, request, stream, [this] { return inspection.ranks_train(); },
                          [this] { return ended(); });
                    }}) {
    // A replica serves the rows that it has even while its primary is away.
    set_serving(sessions != nullptr || rows.log().head() > 0);
    if (replica) replica->start();
  }

  std::unique_ptr<Replica> make_replica() {
    return std::make_unique<Replica>(
        rows,
        [this](const FollowRequest& request) {
          return grpc_follow(options.follow, options.access, request);
        },
        [this] { set_serving(true); });
  }

  void set_serving(bool yes) {
    serving = yes;
    server.set_serving(yes);
  }

  void serve(FrameStream& stream) {
    if (sessions) return sessions->serve(stream);
    WireFrame hello;
    if (stream.receive(hello))
      stream.send(MessageBody::refused(replica_takes_no_updates(options.follow)).frame(0));
  }

  bool ended() {
    const std::lock_guard lock(mutex);
    return over;
  }

  const ServerOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::atomic<bool> serving = false;
  PersistentShard rows;
  std::unique_ptr<ShardSessions> sessions;  // or
  std::unique_ptr<Replica> replica;
  ShardInspection inspection;
  GrpcServer server;
};

EmbedServer::EmbedServer(ServerOptions options)
    : parts_(std::make_unique<Parts>(std::move(options))) {}

EmbedServer::~EmbedServer() { shut_down(); }

std::string EmbedServer::address() const { return parts_->server.address(); }

std::string EmbedServer::recovery() const {
  const PersistentShard::Recovery& found = parts_->rows.recovery();
  std::string text = "version " + std::to_string(found.head) + " from snapshot " +
                     std::to_string(found.snapshot) + " and " +
                     std::to_string(found.head - found.snapshot) + " updates in " +
                     format_seconds(found.seconds);
  if (parts_->replica) text += ", follows " + parts_->options.follow;
  if (found.cut_bytes > 0) text += ", " + format_bytes(found.cut_bytes) + " half written cut off";
  return text;
}

RowInspection& EmbedServer::inspection() { return parts_->inspection; }

bool EmbedServer::serving() const { return parts_->serving; }

void EmbedServer::wait() {
  std::unique_lock lock(parts_->mutex);
  while (!parts_->over) {
    parts_->changed.wait_for(lock, std::chrono::milliseconds(100));
    if (parts_->replica)
      if (const std::exception_ptr error = parts_->replica->failure())
        std::rethrow_exception(error);
    if (const std::exception_ptr error = parts_->rows.live()->server->failure())
      if (!parts_->rows.log().healthy()) std::rethrow_exception(error);
  }
}

void EmbedServer::shut_down() {
  {
    const std::lock_guard lock(parts_->mutex);
    if (std::exchange(parts_->over, true)) return;
  }
  parts_->changed.notify_all();
  if (parts_->sessions) parts_->sessions->stop();
  if (parts_->replica) parts_->replica->stop();
  parts_->server.shut_down();
}

}  // namespace strata
