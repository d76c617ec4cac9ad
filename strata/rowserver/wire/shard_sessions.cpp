#include "strata/rowserver/wire/shard_sessions.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/rowserver/feature_changes.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kLook{20};

SystemError another_run() {
  return SystemError(
      {.operation = "embed.run", .what = "another run has begun since", .fix = "end this one"});
}

constexpr ErrorSource kHelloErrors{"embed.hello"};

}  // namespace

ShardSessions::ShardSessions(PersistentShard& shard, LeaseTimes times)
    : shard_(shard),
      run_(shard.log().run().number),
      begin_(shard.log().run().begin),
      lease_(shard.options().ranks, times, run_ != 0),
      rejoining_(run_ != 0) {
  ranks_.resize(static_cast<std::size_t>(shard.options().ranks));
  for (auto& rank : ranks_) rank = std::make_shared<Rank>();
  shard_.log().on_durable([this](std::int64_t durable, const std::exception_ptr& error) {
    tell_durable(durable, error);
  });
  shard_.keep_versions([this] { return oldest_request(); });
  if (!rejoining_) shard_.live()->server->release();
}

ShardSessions::~ShardSessions() {
  stop();
  shard_.log().on_durable(nullptr);
  shard_.keep_versions({});
}

// After a crash, ranks request again every version whose answer they may lack.
std::int64_t ShardSessions::oldest_request() const {
  const std::lock_guard lock(mutex_);
  std::int64_t oldest = INT64_MAX;
  for (const auto& rank : ranks_)
    for (const auto& [id, kept] : rank->requests) oldest = std::min(oldest, kept.version);
  return oldest;
}

void ShardSessions::tell_durable(std::int64_t durable, const std::exception_ptr& error) {
  if (error) return shard_.live()->server->fail(error);
  const std::lock_guard lock(mutex_);
  for (const auto& rank : ranks_)
    if (rank->outbox) rank->outbox->set_durable(durable);
}

std::uint64_t ShardSessions::run_to_follow() {
  Lock lock(mutex_);
  const std::int64_t contacts = lease_.contacts();
  while (!stopped_ && lease_.is_held()) {
    if (lease_.contacts() > contacts) lease_.refuse();
    changed_.wait_for(lock, kLook);
  }
  return run_;
}

void ShardSessions::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const auto& rank : ranks_)
    if (rank->outbox) rank->outbox->close();
  changed_.notify_all();
}

void ShardSessions::catch_up() {
  const std::lock_guard joining(join_mutex_);
  {
    const std::lock_guard lock(mutex_);
    const bool any =
        std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->joined; });
    if (!rejoining_ || any) return;
  }
  shard_.live()->server->release();
}

SessionCounts ShardSessions::counts() const {
  const std::lock_guard lock(mutex_);
  SessionCounts counts = counts_;
  for (const auto& rank : ranks_) counts.connected_ranks += rank->outbox ? 1 : 0;
  return counts;
}

void ShardSessions::check(const Hello& hello) const {
  const PersistentShardOptions& options = shard_.options();
  const std::string same = "start servers and trainers with the same program and recipe";
  if (hello.wire_version != kWireVersion)
    throw kHelloErrors.user("", "the trainer is of another version of the program",
                            "messages of version " + std::to_string(kWireVersion),
                            "version " + std::to_string(hello.wire_version), same);
  if (hello.fingerprint != shard_.fingerprint()) {
    FeatureChanges changes{"fingerprint " + std::to_string(shard_.fingerprint()),
                           "fingerprint " + std::to_string(hello.fingerprint)};
    if (!hello.tables.empty()) {
      const SeededFeatures theirs = unpack_features(hello.tables);
      if (fingerprint_of(theirs.features, theirs.seed) == hello.fingerprint)
        changes = feature_changes({options.features, options.seed}, theirs);
    }
    throw kHelloErrors.user("", "the trainer has another recipe: its tables or its seed differ",
                            changes.here, changes.there, same);
  }
  if (hello.shard != options.shard || hello.shards != options.shards)
    throw kHelloErrors.user(
        "", "the addresses of the servers are not in their order, or not all of them",
        "shard " + std::to_string(options.shard) + " of " + std::to_string(options.shards),
        "shard " + std::to_string(hello.shard) + " of " + std::to_string(hello.shards),
        "list the servers by the number of their shard");
  if (hello.ranks != options.ranks || hello.rank < 0 || hello.rank >= hello.ranks)
    throw kHelloErrors.user(
        "", "the server waits for another number of ranks", std::to_string(options.ranks),
        "rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.ranks),
        "start the server with the number of ranks that train");
  if (hello.run == 0)
    throw kHelloErrors.user("", "a run has no name", "a number above 0", "0", same);
}

void ShardSessions::serve(FrameStream& stream) {
  auto frame = std::make_shared<WireFrame>();
  if (!stream.receive(*frame)) return;
  const auto outbox = std::make_shared<Outbox>([this](std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    counts_.sent_bytes += static_cast<std::int64_t>(bytes);
  });
  int rank = -1;
  bool left = false;
  std::thread sending;
  try {
    const WireMessage first(*frame);
    if (first.kind() != MessageKind::kHello)
      throw kHelloErrors.user("", "a stream begins with another message", "a hello",
                              "kind " + std::to_string(static_cast<int>(first.kind())),
                              "start servers and trainers with the same program");
    const Hello hello = first.hello();
    check(hello);
    const Welcome welcome = join(hello, outbox, stream);
    rank = hello.rank;
    outbox->note_received();
    outbox->push(std::make_shared<MessageBody>(MessageBody::of(welcome)));
    outbox->set_durable(welcome.durable);
    sending = std::thread([&] { outbox->send_all(stream); });
    for (std::int64_t expected = 1;;) {
      // A part that waits keeps its message.
      if (frame.use_count() > 1) frame = std::make_shared<WireFrame>();
      {
        const std::lock_guard lock(mutex_);
        if (!is_stream_of(rank, outbox)) break;
        lease_.listen(rank);
      }
      if (!stream.receive(*frame)) break;
      const WireMessage message(*frame);
      {
        const std::lock_guard lock(mutex_);
        if (!is_stream_of(rank, outbox)) break;
        lease_.hear(rank);
        counts_.received_bytes += static_cast<std::int64_t>(frame->size());
      }
      if (message.number() < expected) continue;  // twice
      if (message.number() > expected) break;     // one was lost: the rank comes again
      ++expected;
      outbox->note_received();
      left = message.kind() == MessageKind::kBye;
      if (!handle(message, frame, rank, outbox)) break;
    }
    outbox->close();
  } catch (const SystemError& error) {
    // A message that was damaged on its way is worth another try.
    if (error.text().operation == "embed.decode")
      outbox->close();
    else
      outbox->close(std::make_shared<MessageBody>(MessageBody::refused(error)));
  } catch (const std::exception& error) {
    outbox->close(std::make_shared<MessageBody>(MessageBody::refused(error)));
  }
  if (!sending.joinable()) sending = std::thread([&] { outbox->send_all(stream); });
  sending.join();
  const std::lock_guard lock(mutex_);
  if (rank >= 0 && is_stream_of(rank, outbox)) end_stream(rank, left);
}

bool ShardSessions::is_stream_of(int rank, const std::shared_ptr<Outbox>& outbox) const {
  return ranks_[static_cast<std::size_t>(rank)]->outbox == outbox;
}

void ShardSessions::end_stream(int rank, bool left) {
  ranks_[static_cast<std::size_t>(rank)]->outbox = nullptr;
  left ? lease_.leave(rank) : lease_.lose(rank);
  changed_.notify_all();
}

Welcome ShardSessions::join(const Hello& hello, const std::shared_ptr<Outbox>& outbox,
                            FrameStream& stream) {
  {
    const std::lock_guard joining(join_mutex_);
    register_rank(hello, outbox);
    if (all_joined()) {
      shard_.rewind(oldest_read());
      const std::lock_guard lock(mutex_);
      chosen_ = true;
      changed_.notify_all();
    }
  }
  wait_for_others(hello, outbox, stream);
  const std::shared_ptr<LiveShard> live = shard_.live();
  return {.version = live->server->version(),
          .last_part = live->server->last_part(hello.rank),
          .durable = shard_.log().durable()};
}

void ShardSessions::register_rank(const Hello& hello, const std::shared_ptr<Outbox>& outbox) {
  bool begins = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw SystemError({.operation = "embed.decode", .what = "the server ends"});
    begins = name_of_run(run_) != hello.run;
    if (begins && hello.follows != run_) throw_error(another_run());
    if (begins && lease_.is_held()) lease_.refuse();
  }
  require_fitting(hello, begins);
  if (begins) begin_run(hello);
  const std::lock_guard lock(mutex_);
  ++counts_.streams;
  lease_.join(hello.rank, hello.holder);
  Rank& rank = *ranks_[static_cast<std::size_t>(hello.rank)];
  if (rank.outbox) rank.outbox->close();
  rank.outbox = outbox;
  rank.wire = hello.wire;
  rank.joined = true;
  rank.resent_left = hello.requests;
  rank.oldest = hello.oldest;
}

// Compares the Hello with this shard. A refused rank changes nothing.
void ShardSessions::require_fitting(const Hello& hello, bool begins) const {
  if (!begins && hello.begin != begin_)
    throw kHelloErrors.user("", "ranks of a run begin at different versions",
                            std::to_string(begin_), std::to_string(hello.begin),
                            "resume all ranks at the same checkpoint");
  const std::int64_t head = begins ? hello.begin : shard_.log().head();
  if (hello.durable > head)
    throw SystemError({.operation = "embed.log",
                       .where = shard_.options().folder,
                       .what = "the log lacks updates that were durable",
                       .expected = "updates up to " + std::to_string(hello.durable),
                       .got = "up to " + std::to_string(head),
                       .fix = "restore the folder, or resume at a checkpoint that it reaches"});
  if (begins) return shard_.require_beginnable(hello.begin, hello.abandoned);
  if (hello.oldest >= 0) shard_.require_reachable(std::min(hello.oldest, head));
}

// Releases the mutex while rows are replaced, because requests that waited for the old rows are
// answered then.
void ShardSessions::begin_run(const Hello& hello) {
  const std::uint64_t before = run_;
  const std::uint64_t number =
      next_run_number(std::max(before, shard_.log().run().number), hello.run);
  const auto ended = std::make_shared<MessageBody>(MessageBody::refused(another_run()));
  {
    const std::lock_guard lock(mutex_);
    for (auto& rank : ranks_) {
      if (rank->outbox) rank->outbox->close(ended);
      rank = std::make_shared<Rank>();
    }
    rejoining_ = chosen_ = false;
    run_ = number;
    begin_ = hello.begin;
    lease_.begin(hello.holder);
    changed_.notify_all();
  }
  try {
    shard_.begin_run(number, hello.begin, hello.abandoned);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    run_ = before;
    throw;
  }
}

bool ShardSessions::all_joined() const {
  const std::lock_guard lock(mutex_);
  return rejoining_ && !chosen_ &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank->joined; });
}

std::int64_t ShardSessions::oldest_read() const {
  const std::lock_guard lock(mutex_);
  std::int64_t oldest = shard_.log().head();
  for (const auto& rank : ranks_)
    if (rank->oldest >= 0) oldest = std::min(oldest, rank->oldest);
  return oldest;
}

// After a restart: waits until all ranks have reconnected and the version is known at which the
// replay starts.
void ShardSessions::wait_for_others(const Hello& hello, const std::shared_ptr<Outbox>& outbox,
                                    FrameStream& stream) {
  Lock lock(mutex_);
  const auto index = static_cast<std::size_t>(hello.rank);
  const auto mine = [&] {
    return !stopped_ && name_of_run(run_) == hello.run && ranks_[index]->outbox == outbox;
  };
  while (mine() && rejoining_ && !chosen_) {
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (!mine() || chosen_) continue;
    if (stream.alive()) {
      lease_.hear(hello.rank);
      continue;
    }
    ranks_[index]->joined = false;
    end_stream(hello.rank, false);
  }
  if (!mine())
    throw SystemError({.operation = "embed.decode", .what = "the stream is another's by now"});
  release_if_all_came(lock);
}

void ShardSessions::release_if_all_came(Lock& lock) {
  if (!rejoining_ || !chosen_) return;
  for (const auto& rank : ranks_)
    if (rank->resent_left > 0) return;
  rejoining_ = false;
  const std::shared_ptr<LiveShard> live = shard_.live();
  lock.unlock();
  live->server->release();
  lock.lock();
}

// Returns false after the last message.
bool ShardSessions::handle(const WireMessage& message,
                           const std::shared_ptr<const WireFrame>& frame, int rank,
                           const std::shared_ptr<Outbox>& outbox) {
  // In this order: a stream of an older run must not reach the rows of a newer one.
  const std::shared_ptr<LiveShard> live = shard_.live();
  {
    const std::lock_guard lock(mutex_);
    if (ranks_[static_cast<std::size_t>(rank)]->outbox != outbox) return false;
  }
  switch (message.kind()) {
    case MessageKind::kRead:
    case MessageKind::kReached:
    case MessageKind::kSave:
      handle_request(message, rank, outbox);
      return true;
    case MessageKind::kPart: {
      PartMessage part = message.part(shard_.options().features, frame);
      live->server->update(rank, part.version, std::move(part.part));
      return true;
    }
    case MessageKind::kAlive:
      return true;
    case MessageKind::kBye:
      live->server->leave(rank);
      return false;
    default:
      throw kHelloErrors.user("", "a rank sends what only servers send", "a request",
                              "kind " + std::to_string(static_cast<int>(message.kind())),
                              "start servers and trainers with the same program");
  }
}

void ShardSessions::handle_request(const WireMessage& message, int rank,
                                   const std::shared_ptr<Outbox>& outbox) {
  Request request = message.request();
  Lock lock(mutex_);
  const std::shared_ptr<Rank> state = ranks_[static_cast<std::size_t>(rank)];
  if (state->outbox != outbox) return;
  state->requests.erase(state->requests.begin(),
                        state->requests.lower_bound(request.answered_below));
  std::int64_t oldest = message.kind() == MessageKind::kRead ? INT64_MAX : request.version;
  for (const FeatureRead& read : request.reads) oldest = std::min(oldest, read.version);
  const auto [known, fresh] =
      state->requests.try_emplace(request.id, Rank::Kept{.version = oldest});
  known->second.requested_by = outbox;
  if (!fresh) {
    ++counts_.repeated_requests;
    if (known->second.answer) outbox->push(known->second.answer);
  } else {
    lock.unlock();
    perform(message.kind(), std::move(request), rank, state);
    lock.lock();
    if (state->outbox != outbox) return;  // the rank has come back, and counts anew what it sends
  }
  if (!rejoining_ || state->resent_left == 0) return;
  --state->resent_left;
  release_if_all_came(lock);
}

void ShardSessions::perform(MessageKind kind, Request request, int rank,
                            const std::shared_ptr<Rank>& state) {
  const std::shared_ptr<LiveShard> live = shard_.live();
  const std::uint64_t id = request.id;
  const std::int64_t version = request.version;
  const auto failed = [id](const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& known) {
      return MessageBody::failed(id, known);
    }
  };
  const auto done = [this, state, id, failed](const std::exception_ptr& error) {
    answer(state, id, error ? failed(error) : MessageBody::done(id));
  };
  try {
    if (kind == MessageKind::kReached) {
      live->server->when_reached(version, done);
    } else if (kind == MessageKind::kSave) {
      if (shard_.saved(version)) return done(nullptr);
      live->server->at(version, [this, version, done](std::exception_ptr error) {
        try {
          if (!error) shard_.save(version);
        } catch (...) {
          error = std::current_exception();
        }
        done(error);
      });
    } else {
      live->server->read(rank, std::move(request.reads),
                         [this, state, id, failed, server = live->server.get()](
                             std::vector<FeatureRows> rows, std::exception_ptr error) {
                           try {
                             if (!error) {
                               MessageBody body = MessageBody::of_rows(
                                   id, rows, shard_.options().features, state->wire.rows);
                               server->recycle(std::move(rows));
                               return answer(state, id, std::move(body));
                             }
                           } catch (...) {
                             error = std::current_exception();
                           }
                           answer(state, id, failed(error));
                         });
    }
  } catch (...) {
    done(std::current_exception());
  }
}

void ShardSessions::answer(const std::shared_ptr<Rank>& state, std::uint64_t id, MessageBody body) {
  auto kept = std::make_shared<const MessageBody>(std::move(body));
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  const auto found = state->requests.find(id);
  if (found == state->requests.end()) return;
  found->second.answer = kept;
  // Only the stream that requested this answer gets it. After a reconnection the rank sends the
  // request again, and the server counts that.
  if (state->outbox && found->second.requested_by.lock() == state->outbox)
    state->outbox->push(std::move(kept));
}

}  // namespace strata
