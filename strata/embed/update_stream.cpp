// What a follower has is known by (run, version): runs begin at versions of older ones, so that the same
// version may be other rows. The log changes while it is sent; so a record counts only if its run is still
// the same when it was read.
#include "strata/embed/update_stream.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/embed/byte_codec.h"
#include "strata/embed/wire_messages.h"

namespace strata {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kStatusEvery{500};

[[noreturn]] void refuse(const std::string& what, const std::string& expected,
                         const std::string& got, const std::string& fix) {
  throw UserError(
      {.operation = "embed.follow", .what = what, .expected = expected, .got = got, .fix = fix});
}

void check(const PersistentShard& shard, const FollowRequest& request) {
  const PersistentShardOptions& options = shard.options();
  const std::string same = "start replica and primary with the same program and recipe";
  if (request.wire_version != kWireVersion)
    refuse("the replica is of another version of the program",
           "messages of version " + std::to_string(kWireVersion),
           "version " + std::to_string(request.wire_version), same);
  if (request.fingerprint != shard.fingerprint())
    refuse("the replica has another recipe: features, their optimizers or the seed differ",
           "fingerprint " + std::to_string(shard.fingerprint()),
           "fingerprint " + std::to_string(request.fingerprint), same);
  if (request.shard != options.shard || request.shards != options.shards)
    refuse("the replica is one of another shard",
           "shard " + std::to_string(options.shard) + " of " + std::to_string(options.shards),
           "shard " + std::to_string(request.shard) + " of " + std::to_string(request.shards),
           "follow the server of this shard");
}

class Sender {
 public:
  Sender(PersistentShard& shard, const FollowRequest& request, FrameStream& stream)
      : shard_(shard), stream_(stream), run_(request.run), version_(request.version) {}

  // False: the stream is broken.
  bool step() {
    UpdateLog& log = shard_.log();
    const std::int64_t shared = version_ < 0 ? -1 : log.shared_with(run_, version_);
    if (shared < 0 || shared + 1 < log.first() || (shared == 0 && shard_.newest_base().version > 0))
      return send_snapshot(shard_.newest_base());
    const LogRun next = log.run_of(shared + 1);
    if (next.number != run_) {
      run_ = next.number, version_ = std::min(shared, next.begin);
      return send({.kind = StreamKind::kRun, .run = next});
    }
    if (shared < version_) {  // a run is just beginning
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return true;
    }
    if (const auto digest = shard_.digest_at(version_); digest && digested_ != version_) {
      digested_ = version_;
      if (!send({.kind = StreamKind::kDigest, .version = version_, .digest = *digest}))
        return false;
    }
    if (std::chrono::steady_clock::now() - told_ > kStatusEvery) {
      told_ = std::chrono::steady_clock::now();
      if (!send({.kind = StreamKind::kStatus, .version = log.durable()})) return false;
    }
    if (log.durable() <= version_) {
      log.wait_durable_for(version_ + 1, 100);
      return true;
    }
    UpdateLog::Bytes record = log.record(version_ + 1);
    if (UpdateLog::parse_record(record).version != version_ + 1 ||
        log.run_of(version_ + 1).number != run_)
      return true;
    ++version_;
    return send({.kind = StreamKind::kUpdate, .bytes = std::move(record)});
  }

 private:
  bool send(StreamFrame frame) {
    frame.number = sent_++;
    return stream_.send(encode_stream_frame(frame));
  }

  bool send_snapshot(const PersistentShard::Base& base) {
    std::shared_ptr<const RandomAccessFile> file;
    if (!base.path.empty())
      file = RandomAccessFile::open(base.path, {.operation = "embed.follow", .fix = ""});
    const LogRun run = shard_.log().run_of(base.version + 1);
    if (!send({.kind = StreamKind::kSnapshot, .version = base.version, .run = run})) return false;
    StreamFrame chunk{.kind = StreamKind::kChunk};
    for (std::uint64_t at = 0; file && at < file->size(); at += chunk.bytes.size()) {
      chunk.bytes.resize(
          static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, file->size() - at)));
      file->read(at, chunk.bytes);
      if (!send(chunk)) return false;
    }
    run_ = run.number, version_ = base.version;
    return send({.kind = StreamKind::kSnapshotEnd});
  }

  PersistentShard& shard_;
  FrameStream& stream_;
  std::uint64_t run_;
  std::int64_t version_;
  std::int64_t digested_ = -1, sent_ = 0;
  std::chrono::steady_clock::time_point told_{};
};

}  // namespace

std::string FollowRequest::text() const {
  return nlohmann::json{{"wire", wire_version}, {"fingerprint", fingerprint},
                        {"shard", shard},       {"shards", shards},
                        {"run", run},           {"version", version}}
      .dump();
}

FollowRequest FollowRequest::parse(const std::string& text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return {.wire_version = json.at("wire"),
            .fingerprint = json.at("fingerprint"),
            .shard = json.at("shard"),
            .shards = json.at("shards"),
            .run = json.at("run"),
            .version = json.at("version")};
  } catch (const nlohmann::json::exception& error) {
    refuse("it is not known what is to be followed", "a request of a replica", error.what(),
           "start replica and primary with the same program");
  }
}

WireFrame encode_stream_frame(const StreamFrame& frame) {
  ByteWriter to;
  to.out().reserve(frame.bytes.size() + 64);
  to.varint(static_cast<std::uint64_t>(frame.kind));
  to.varint(static_cast<std::uint64_t>(frame.number));
  to.varint(static_cast<std::uint64_t>(frame.version));
  to.fixed64(frame.run.number);
  to.varint(static_cast<std::uint64_t>(frame.run.begin));
  to.fixed64(frame.digest);
  to.blob(frame.bytes);
  to.seal();
  return to.take();
}

StreamFrame decode_stream_frame(std::span<const std::byte> bytes) {
  ByteReader from = ByteReader::sealed(bytes, "a frame of a stream of updates");
  const std::uint64_t kind = from.varint();
  if (kind < 1 || kind > static_cast<std::uint64_t>(StreamKind::kRefused))
    from.refuse("there is no such frame");
  StreamFrame frame{.kind = static_cast<StreamKind>(kind)};
  frame.number = from.number();
  frame.version = from.number();
  frame.run.number = from.fixed64();
  frame.run.begin = from.number();
  frame.digest = from.fixed64();
  const std::span<const std::byte> blob = from.blob();
  frame.bytes.assign(blob.begin(), blob.end());
  from.require_end();
  return frame;
}

void serve_updates(PersistentShard& shard, const std::string& request, FrameStream& stream,
                   const std::function<bool()>& ended) {
  try {
    const FollowRequest who = FollowRequest::parse(request);
    check(shard, who);
    Sender sender(shard, who, stream);
    while (stream.alive() && !ended()) {
      try {
        if (!sender.step()) return;
      } catch (const UserError&) {
        // What lay in a file that a run that begins, or a limit of the log, has just removed.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  } catch (const std::exception& error) {
    const std::string text = encode_error(to_error(error));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    stream.send(
        encode_stream_frame({.kind = StreamKind::kRefused, .bytes = {bytes.begin(), bytes.end()}}));
  }
}

}  // namespace strata
