#include "strata/embed/wire/embed_server.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/embed/row_servers.h"
#include "strata/embed/rows/row_table_state.h"
#include "strata/embed/shard/persistent_shard.h"
#include "strata/embed/wire/grpc_client.h"
#include "strata/embed/wire/grpc_server.h"
#include "strata/embed/wire/question.h"
#include "strata/embed/wire/replica.h"
#include "strata/embed/wire/server_metrics.h"
#include "strata/embed/wire/shard_sessions.h"
#include "strata/embed/wire/update_stream.h"

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
  const auto refuse = [](const std::string& where, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix) {
    throw UserError({.operation = "embed.server",
                     .where = where,
                     .what = what,
                     .expected = expected,
                     .got = got,
                     .fix = fix});
  };
  if (options.features.empty())
    refuse("--features", "no feature has rows", "one feature at least", "none",
           "name a recipe, or a file with features");
  if (options.shards < 1 || options.shards > kMostShards)
    refuse("--shards", "there is no such number of servers", from_to(1, kMostShards),
           std::to_string(options.shards), "set --shards to the number of servers");
  if (options.shard < 0 || options.shard >= options.shards)
    refuse("--shard", "there is no such shard", from_to(0, options.shards - 1),
           std::to_string(options.shard), "count shards from 0");
  if (options.ranks < 1 || options.ranks > kMostRanks)
    refuse("--ranks", "there is no such number of ranks", from_to(1, kMostRanks),
           std::to_string(options.ranks), "set --ranks to the replicas that train (mesh.dp)");
  if (options.folder.empty())
    refuse("--folder", "rows have no folder", "a folder", "none", "pass --folder FOLDER");
  if (options.kept_snapshots < 2)
    refuse("--keep", "the snapshot of the last checkpoint would go before the next one is written",
           "2 kept snapshots or more", std::to_string(options.kept_snapshots), "pass --keep 2");
  if (options.memory_bytes < 0)
    refuse("--memory", "rows have no such memory", "0 or more bytes",
           std::to_string(options.memory_bytes), "pass --memory 2GiB, or leave it out: no limit");
  if (options.log_limit < 0)
    refuse("--log-limit", "the log has no such limit", "0 or more bytes",
           std::to_string(options.log_limit), "pass --log-limit 4GiB, or 0: no limit");
  if (!options.follow.empty() && !options.from.empty())
    refuse("--from", "a replica has its rows from the server that it follows", "no other folders",
           options.from.front(), "leave --from out");
}

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMostIds = 10'000;  // of an answer

// Ranks that lost their stream come back within this time.
constexpr std::chrono::milliseconds kRejoining{1000};
// A replica without a stream knows nothing of ranks, and its primary may be starting.
constexpr std::chrono::milliseconds kReconnecting{10'000};
constexpr std::chrono::milliseconds kLook{50};  // between two looks who is there

std::string digest_text(LiveShard& live) {
  return nlohmann::json{{"version", live.server->version()},
                        {"digest", checksum_text(digest_of(*live.state))}}
      .dump();
}

std::uint64_t number_in(const std::string& word) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc() && end == word.data() + word.size() && !word.empty()) return number;
  throw UserError({.operation = "embed.ask",
                   .what = "a number is missing",
                   .expected = "a whole number from 0 to 18446744073709551615",
                   .got = quote(word),
                   .fix = "write an id, a count or a version there, as in: row user 42"});
}

}  // namespace

struct EmbedServer::Parts {
  explicit Parts(ServerOptions given)
      : options((check(given), std::move(given))),
        rows(shard_options(options), make_table(options)),
        sessions(options.follow.empty() ? std::make_unique<ShardSessions>(rows) : nullptr),
        replica(options.follow.empty() ? nullptr : make_replica()),
        server(options.listen, options.access,
               {.session = [this](FrameStream& stream) { serve(stream); },
                .ask = [this](const std::string& question) { return ask(question); },
                .follow =
                    [this](const std::string& request, FrameStream& stream) {
                      serve_updates(
                          rows, request, stream, [this] { return somebody_trains(); },
                          [this] { return ended(); });
                    }}) {
    // Old rows are better than none where the primary is away, too.
    server.set_serving(sessions != nullptr || rows.log().head() > 0);
    if (replica) replica->start();
  }

  std::unique_ptr<Replica> make_replica() {
    return std::make_unique<Replica>(
        rows,
        [this](const std::string& request) {
          return grpc_follow(options.follow, options.access, request);
        },
        [this] { server.set_serving(true); });
  }

  void serve(FrameStream& stream) {
    if (sessions) return sessions->serve(stream);
    WireFrame hello;
    if (stream.receive(hello)) stream.send(MessageBody::refused(no_updates()).frame(0));
  }

  UserError no_updates() const {
    return UserError({.operation = "embed.hello",
                      .what = "this server is a replica: it takes no updates",
                      .expected = "the server that it follows, " + options.follow,
                      .got = "the replica's address",
                      .fix = "name that one in embedding.servers"});
  }

  // Rows that others replace are asked no more: what they would have answered, the others are asked.
  template <typename Ask>
  std::string ask_rows(const Ask& ask) {
    if (sessions) sessions->catch_up();
    const auto end = Clock::now() + std::chrono::duration<double>(options.ask_seconds);
    for (;; std::this_thread::sleep_for(kLook)) {
      try {
        return ask(rows.live(), end);
      } catch (const SystemError& error) {
        if (error.text().operation != "embed.run" || Clock::now() > end || ended()) throw;
      }
    }
  }

  // At the version that rows have.
  template <typename Look>
  std::string inspect(const Look& look) {
    return ask_rows([&](const std::shared_ptr<LiveShard>& live, auto) {
      std::promise<std::string> promise;
      live->server->inspect([&](const std::exception_ptr& error) {
        try {
          if (error) std::rethrow_exception(error);
          promise.set_value(look(*live));
        } catch (...) {
          promise.set_exception(std::current_exception());
        }
      });
      return promise.get_future().get();
    });
  }

  // At exactly this version, which may have to be made first.
  std::string digest_at(std::int64_t version) {
    return ask_rows([&](const std::shared_ptr<LiveShard>& live, auto end) {
      return digest_of_version(live, version, end);
    });
  }

  std::string digest_of_version(const std::shared_ptr<LiveShard>& live, std::int64_t version,
                                auto end) {
    // Outlives a question that is given up: the server may still reach the version.
    const auto answer = std::make_shared<std::promise<std::string>>();
    std::future<std::string> answered = answer->get_future();
    bool left = false;
    try {
      live->server->at(version, [answer, of = live.get()](const std::exception_ptr& error) {
        try {
          if (error) std::rethrow_exception(error);
          answer->set_value(digest_text(*of));
        } catch (...) {
          answer->set_exception(std::current_exception());
        }
      });
      if (comes(version, answered, *live->server, end)) return answered.get();
    } catch (const SystemError& error) {
      if (version <= live->server->version() || error.text().operation != "embed.order") throw;
      // Whoever asks has no part in the order of updates, which is what the error speaks of.
      left = true;
    }
    const std::string why = left                ? ", and a rank that trained has left"
                            : somebody_trains() ? " yet"
                                                : ", and nobody trains";
    throw UserError({.operation = "embed.ask",
                     .what = "there is no such version" + why,
                     .expected = "version " + std::to_string(live->server->version()),
                     .got = "version " + std::to_string(version),
                     .fix = "ask for digest without a version"});
  }

  // False where no update will come, as far as can be seen: no rank is there and the rows stay as they are.
  bool comes(std::int64_t version, const std::future<std::string>& answered,
             const ShardServer& server, auto end) {
    auto moved = Clock::now();
    for (std::int64_t before = server.version(); before < version;) {
      if (answered.wait_for(kLook) == std::future_status::ready) return true;
      const std::int64_t now_at = server.version();
      const auto now = Clock::now();
      if (somebody_trains() || now_at != before) moved = now;
      const bool unheard = replica && !replica->counts().following;
      if (now > end || now - moved > (unheard ? kReconnecting : kRejoining)) return false;
      before = now_at;
    }
    return true;  // the digest of many rows takes its time
  }

  bool somebody_trains() const {
    if (sessions) return sessions->counts().connected_ranks > 0;
    const ReplicaCounts counts = replica->counts();
    const bool behind = rows.live()->server->version() < counts.primary_version;
    return counts.following && (counts.primary_trains || behind);
  }

  int feature_named(const std::string& name) const {
    std::vector<std::string> names;
    for (int i = 0; i < static_cast<int>(options.features.size()); ++i) {
      names.push_back(options.features[static_cast<std::size_t>(i)].name);
      if (names.back() == name) return i;
    }
    const std::string nearest = nearest_name(name, names);
    throw UserError({.operation = "embed.ask",
                     .where = "feature " + quote(name),
                     .what = "the server has no such feature",
                     .expected = nearest.empty() ? names.front() : nearest,
                     .got = quote(name),
                     .fix = "ask for " + word_of_name(nearest.empty() ? names.front() : nearest)});
  }

  std::string ask(const std::string& question) {
    std::vector<std::string> words = words_of_question(question);
    words.resize(std::max<std::size_t>(words.size(), 3));  // those that are missing are empty
    const std::string &what = words[0], &first = words[1], &second = words[2];
    if (what == "metrics") return metrics();
    if (what == "sizes") return sizes();
    if (what == "digest") {
      if (!first.empty()) return digest_at(static_cast<std::int64_t>(number_in(first)));
      return inspect([](LiveShard& live) { return digest_text(live); });
    }
    if (what == "row") {
      const int feature = feature_named(first);
      const std::uint64_t id = id_here(feature, second);
      return inspect([&](LiveShard& live) { return live.state->describe(feature, id); });
    }
    if (what == "rows") return rows_of(feature_named(first), {words.begin() + 2, words.end()});
    if (what == "lag") return lag();
    if (what == "run") {
      if (!sessions) throw no_updates();
      return std::to_string(sessions->run_to_follow());
    }
    if (what == "hot") {
      const int feature = feature_named(first);
      const auto count = static_cast<int>(std::min<std::uint64_t>(number_in(second), kMostIds));
      return inspect([&](LiveShard& live) {
        const HotRows hot = live.state->hottest(feature, count);
        nlohmann::json ids = nlohmann::json::array();
        for (const HotId& id : hot.ids())
          ids.push_back({{"id", id.id}, {"updates", id.hits}, {"tier", name_of(id.tier)}});
        return nlohmann::json{{"rows", hot.rows},
                              {"cold_rows", hot.cold_rows},
                              {"updates", hot.updates},
                              {"cold_updates", hot.cold_updates},
                              {"ids", ids}}
            .dump();
      });
    }
    throw UserError({.operation = "embed.ask",
                     .what = "the server does not know this question",
                     .expected =
                         "metrics, sizes, digest [VERSION], row FEATURE ID, rows FEATURE ID..., "
                         "hot FEATURE COUNT, run or lag",
                     .got = quote(question),
                     .fix = "ask for metrics"});
  }

  std::uint64_t id_here(int feature, const std::string& word) const {
    const std::uint64_t id = number_in(word);
    const int shard = shard_of(feature, id, options.shards);
    if (shard == options.shard) return id;
    throw UserError(
        {.operation = "embed.ask",
         .where = "feature " + quote(options.features[static_cast<std::size_t>(feature)].name),
         .what = "another server has the row of id " + word,
         .expected = "shard " + std::to_string(shard),
         .got = "shard " + std::to_string(options.shard),
         .fix = "ask that one"});
  }

  // All at one version.
  std::string rows_of(int feature, const std::vector<std::string>& words) {
    std::vector<std::uint64_t> ids;
    for (const std::string& word : words) {
      if (word.empty()) continue;  // no id was given
      if (ids.size() == kMostIds)
        throw UserError({.operation = "embed.ask",
                         .what = "too many rows are asked for at once",
                         .expected = "at most " + std::to_string(kMostIds),
                         .got = "more",
                         .fix = "ask for the others in another question"});
      ids.push_back(id_here(feature, word));
    }
    const auto width =
        static_cast<std::size_t>(options.features[static_cast<std::size_t>(feature)].width);
    return inspect([&](LiveShard& live) {
      std::vector<float> values(ids.size() * width);
      live.state->rows().read(feature, ids, values);
      nlohmann::json all = nlohmann::json::array();
      for (auto row = values.begin(); row != values.end();
           row += static_cast<std::ptrdiff_t>(width))
        all.push_back(std::vector<float>(row, row + static_cast<std::ptrdiff_t>(width)));
      return nlohmann::json{{"version", live.server->version()}, {"rows", all}}.dump();
    });
  }

  std::string lag() {
    if (!replica) return "";
    const ReplicaCounts counts = replica->counts();
    const std::int64_t version = rows.live()->server->version();
    return nlohmann::json{{"version", version},
                          {"primary", counts.primary_version},
                          {"lag", std::max<std::int64_t>(0, counts.primary_version - version)},
                          {"following", counts.following}}
        .dump();
  }

  // By feature; no update waits for the answer.
  std::string sizes() {
    return ask_rows([&](const std::shared_ptr<LiveShard>& live, auto) {
      const std::vector<FeatureCounts> counts = live->state->counts();
      nlohmann::json all = nlohmann::json::array();
      for (std::size_t i = 0; i < counts.size(); ++i)
        all.push_back({{"feature", options.features[i].name},
                       {"rows", counts[i].rows},
                       {"bytes", counts[i].bytes},
                       {"cold_rows", counts[i].cold_rows},
                       {"cold_bytes", counts[i].cold_bytes}});
      return all.dump();
    });
  }

  std::string metrics() {
    ServerMetrics of{.shard = options.shard,
                     .shards = options.shards,
                     .gate = rows.live()->server->counts(),
                     .sessions = sessions ? sessions->counts() : SessionCounts{},
                     .features = options.features,
                     .durable_version = rows.log().durable(),
                     .log_bytes = rows.log().bytes(),
                     .compactions = rows.compactions()};
    if (replica) of.replica = replica->counts();
    inspect([&](LiveShard& live) {
      for (const FeatureCounts& feature : live.state->counts())
        of.rows.push_back(feature.rows + feature.cold_rows);
      of.memory_bytes = live.state->bytes();
      return std::string();
    });
    return prometheus_text(of);
  }

  bool ended() {
    const std::lock_guard lock(mutex);
    return over;
  }

  const ServerOptions options;
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  PersistentShard rows;
  std::unique_ptr<ShardSessions> sessions;  // or
  std::unique_ptr<Replica> replica;
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

std::string EmbedServer::ask(const std::string& question) { return parts_->ask(question); }

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
