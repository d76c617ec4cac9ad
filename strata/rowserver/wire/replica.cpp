// The rows of a replica are a shard like any other: its updates come from the primary's log into
// its own, and are applied from there as after a restart. So it recovers, limits its log and
// answers as a server.
#include "strata/rowserver/wire/replica.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::int64_t kFirstPause = 20, kLongestPause = 500;  // milliseconds

SystemError out_of_order(const std::string& expected, const std::string& got) {
  return SystemError({.operation = "embed.decode",
                      .what = "the stream of updates is out of order",
                      .expected = expected,
                      .got = got,
                      .fix = "start replica and primary with the same program"});
}

}  // namespace

// A snapshot that is being received. It replaces the replica's rows when it is complete.
struct Replica::Download {
  Download(std::string to, const StreamFrame& head)
      : path(std::move(to)), version(head.version), run(head.run), file(path) {}
  std::string path;
  std::int64_t version;
  LogRun run;
  DurableFile file;
  bool empty = true;
};

UserError replica_takes_no_updates(const std::string& primary) {
  return UserError({.operation = "embed.hello",
                    .what = "this server is a replica: it takes no updates",
                    .expected = "the server that it follows, " + primary,
                    .got = "the replica's address",
                    .fix = "name that one in embedding.servers"});
}

Replica::Replica(PersistentShard& shard, Follow follow, std::function<void()> caught_up)
    : shard_(shard), follow_(std::move(follow)), call_(std::move(caught_up)) {
  shard_.live()->server->release();
}

Replica::~Replica() { stop(); }

void Replica::start() {
  const std::lock_guard lock(mutex_);
  following_ = executor_.submit([this] { follow_until_stopped(); });
}

void Replica::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (stream_) stream_->cancel();
    changed_.notify_all();
  }
  following_.settle();
}

ReplicaCounts Replica::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::exception_ptr Replica::failure() const {
  Completion following;
  {
    const std::lock_guard lock(mutex_);
    following = following_;
  }
  return following.ready() ? following.error() : nullptr;
}

bool Replica::pause(std::int64_t milliseconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return stopped_; });
  return !stopped_;
}

void Replica::follow_until_stopped() {
  std::int64_t wait = kFirstPause;
  do {
    const std::int64_t before = counts().connections;
    try {
      follow_once();
    } catch (const SystemError& error) {
      const std::string& operation = error.text().operation;
      // The primary reconnects and sends damaged frames again.
      if (operation != "embed.connect" && operation != "embed.decode") throw;
    }
    wait = counts().connections > before ? kFirstPause : std::min(2 * wait, kLongestPause);
  } while (pause(wait));
}

void Replica::follow_once() {
  const PersistentShardOptions& options = shard_.options();
  const FollowRequest request{.fingerprint = shard_.fingerprint(),
                              .shard = options.shard,
                              .shards = options.shards,
                              .run = shard_.log().run().number,
                              .version = restarts_ ? -1 : shard_.log().head()};
  const std::unique_ptr<FrameStream> stream = follow_(request);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stream_ = stream.get();
  }
  const auto forget = [&] {
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    counts_.following = false;
  };
  try {
    std::unique_ptr<Download> download;
    std::int64_t number = 0;
    auto bytes = std::make_shared<WireFrame>();
    for (;; ++number) {
      // An update keeps its message until it is applied.
      if (bytes.use_count() > 1) bytes = std::make_shared<WireFrame>();
      if (!stream->receive(*bytes)) break;
      const StreamFrame frame = decode(bytes, number);
      if (number == 0) {
        const std::lock_guard lock(mutex_);
        counts_.following = counts_.primary_trains = true;
        reported_ = false;
        ++counts_.connections;
      }
      take(frame, download);
      if (restarts_ && !download) break;
    }
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

StreamFrame Replica::decode(std::shared_ptr<const WireFrame> bytes, std::int64_t expected) {
  try {
    StreamFrame frame = decode_stream_frame(std::move(bytes));
    unreadable_ = 0;
    if (frame.number != expected && frame.kind != StreamKind::kRefused)
      throw out_of_order("frame " + std::to_string(expected), std::to_string(frame.number));
    return frame;
  } catch (const SystemError&) {
    // One mismatch may be damage in transit.
    if (expected > 0 || ++unreadable_ < 3) throw;
    throw UserError({.operation = "embed.follow",
                     .what = "the primary is of another version of the program",
                     .expected = "a stream of updates of this version",
                     .got = "other bytes",
                     .fix = "start replica and primary with the same program"});
  }
}

void Replica::take_update(const MessageBytes& bytes) {
  LogRecord record;
  try {
    record = parse_log_record(bytes.bytes);
    damaged_ = 0;
  } catch (const SystemError&) {
    // One mismatch may be damage in transit.
    if (++damaged_ < 3) throw;
    throw UserError({.operation = "embed.follow",
                     .what = "the primary sends a damaged update",
                     .expected = "update " + std::to_string(shard_.log().head() + 1),
                     .got = "bytes that its checksum does not fit",
                     .fix = "restore the primary's folder from a copy"});
  }
  const std::int64_t next = shard_.log().head() + 1;
  if (record.version != next)
    throw out_of_order("update " + std::to_string(next),
                       "update " + std::to_string(record.version));
  shard_.take_update(record, bytes);
  {
    const std::lock_guard lock(mutex_);
    counts_.primary_version = std::max(counts_.primary_version, record.version);
  }
  look_whether_caught_up();
}

void Replica::take(const StreamFrame& frame, std::unique_ptr<Download>& download) {
  UpdateLog& log = shard_.log();
  if (download && frame.kind != StreamKind::kChunk && frame.kind != StreamKind::kSnapshotEnd &&
      frame.kind != StreamKind::kRefused)
    throw out_of_order("the rest of a snapshot", "another frame");
  switch (frame.kind) {
    case StreamKind::kSnapshot:
      download = std::make_unique<Download>(shard_.options().folder + "/snapshot.part", frame);
      return;
    case StreamKind::kChunk:
      if (!download) throw out_of_order("the head of a snapshot", "its bytes");
      download->empty = false;
      return download->file.write(frame.bytes.bytes);
    case StreamKind::kSnapshotEnd: {
      if (!download) throw out_of_order("the head of a snapshot", "its end");
      download->file.close();
      shard_.install(download->empty ? "" : download->path, download->version, download->run);
      download.reset();
      restarts_ = false;
      const std::lock_guard lock(mutex_);
      ++counts_.snapshots;
      return;
    }
    case StreamKind::kRun:
      try {
        if (frame.run.begin > log.head())
          throw out_of_order("update " + std::to_string(log.head() + 1),
                             "a run from version " + std::to_string(frame.run.begin) + " on");
        shard_.follow_run(frame.run);
      } catch (const UserError&) {
        restarts_ = true;  // the folder does not reach back so far
      }
      return;
    case StreamKind::kUpdate:
      return take_update(frame.bytes);
    case StreamKind::kDigest:
      return compare(frame.version, frame.digest);
    case StreamKind::kStatus:
    case StreamKind::kIdle:
      return note_primary(frame.version, frame.kind == StreamKind::kStatus);
    case StreamKind::kRefused: {
      const std::span<const std::byte> text = frame.bytes.bytes;
      throw_error(decode_error({reinterpret_cast<const char*>(text.data()), text.size()}));
    }
  }
}

void Replica::note_primary(std::int64_t version, bool trains) {
  {
    const std::lock_guard lock(mutex_);
    counts_.primary_version = version;
    counts_.primary_trains = trains;
    reported_ = true;
  }
  look_whether_caught_up();
}

// Only statuses state the version of the primary.
void Replica::look_whether_caught_up() {
  {
    const std::lock_guard lock(mutex_);
    if (!reported_ || counts_.caught_up || shard_.log().head() < counts_.primary_version) return;
    counts_.caught_up = true;
  }
  if (call_) call_();
}

void Replica::compare(std::int64_t version, std::uint64_t digest) {
  const std::shared_ptr<LiveShard> live = shard_.live();
  std::promise<std::uint64_t> mine;
  if (version != shard_.log().head()) throw out_of_order("a digest of this version", "another");
  live->server->at(version, [&](const std::exception_ptr& error) {
    if (error)
      mine.set_exception(error);
    else
      mine.set_value(digest_of(*live->state));
  });
  const bool same = mine.get_future().get() == digest;
  restarts_ = !same;
  const std::lock_guard lock(mutex_);
  ++(same ? counts_.equal_digests : counts_.different_digests);
}

}  // namespace strata
