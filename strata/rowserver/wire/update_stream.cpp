// What a follower has is known by (run, version): runs begin at versions of older ones, so that the
// same version may be other rows. The log changes while it is sent; so what was read of it counts
// only if nothing has changed meanwhile, and so does that it could not be read.
#include "strata/rowserver/wire/update_stream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "rows.pb.h"
#include "strata/base/checksum.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/rowserver/codec/byte_codec.h"
#include "strata/rowserver/wire/protobuf.h"
#include "strata/rowserver/wire/wire_messages.h"

namespace strata {
namespace {

namespace proto = embed::v1;

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kStatusEvery{500};
constexpr std::array<std::byte, 19> kRefusalZeros{};  // fields of a frame before wire version 7

constexpr ErrorSource kFollowErrors{"embed.follow"};

void check(const PersistentShard& shard, const FollowRequest& request) {
  const PersistentShardOptions& options = shard.options();
  const std::string same = "start replica and primary with the same program and recipe";
  if (request.wire_version != kWireVersion)
    throw kFollowErrors.user("", "the replica is of another version of the program",
                             "messages of version " + std::to_string(kWireVersion),
                             "version " + std::to_string(request.wire_version), same);
  if (request.fingerprint != shard.fingerprint())
    throw kFollowErrors.user(
        "", "the replica has another recipe: features, their optimizers or the seed differ",
        "fingerprint " + std::to_string(shard.fingerprint()),
        "fingerprint " + std::to_string(request.fingerprint), same);
  if (request.shard != options.shard || request.shards != options.shards)
    throw kFollowErrors.user(
        "", "the replica is one of another shard",
        "shard " + std::to_string(options.shard) + " of " + std::to_string(options.shards),
        "shard " + std::to_string(request.shard) + " of " + std::to_string(request.shards),
        "follow the server of this shard");
}

MessageBytes whole(std::vector<std::byte> bytes) {
  const auto message = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {.message = message, .bytes = *message};
}

class Sender {
 public:
  Sender(PersistentShard& shard, const FollowRequest& request, FrameStream& stream,
         const std::function<bool()>& trains)
      : shard_(shard),
        stream_(stream),
        trains_(trains),
        run_(request.run),
        version_(request.version) {}

  // False: the stream is broken.
  bool step() {
    UpdateLog& log = shard_.log();
    const std::int64_t changes = log.changes();
    if (log.durable() < 0) {  // all rows are just being replaced
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return true;
    }
    const std::int64_t shared = version_ < 0 ? -1 : log.shared_with(run_, version_);
    if (shared < 0 || shared + 1 < log.first() || (shared == 0 && shard_.newest_base().version > 0))
      return send_snapshot(shard_.newest_base(), changes);
    if (changes != log.changes()) return true;
    const LogRun next = log.run_of(shared + 1);
    if (next.number != run_) {
      run_ = next.number, version_ = std::min(shared, next.begin), digested_ = -1;
      return send({.kind = StreamKind::kRun, .run = next});
    }
    if (shared < version_) {  // a run is just beginning
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return true;
    }
    // Before its digest is looked for: one that is made later belongs before the next update, too.
    const std::int64_t durable = log.durable();
    if (const auto digest = shard_.digest_at(version_); digest && digested_ != version_) {
      digested_ = version_;
      if (!send({.kind = StreamKind::kDigest, .version = version_, .digest = *digest}))
        return false;
    }
    if (std::chrono::steady_clock::now() - reported_ > kStatusEvery) {
      reported_ = std::chrono::steady_clock::now();
      // An update that is still to be sent counts as training: it comes without anybody.
      const bool trains = trains_() || log.durable() < log.head();
      const StreamKind kind = trains ? StreamKind::kStatus : StreamKind::kIdle;
      if (!send({.kind = kind, .version = log.durable()})) return false;
    }
    if (durable <= version_) {
      log.wait_durable_for(version_ + 1, 100);
      return true;
    }
    UpdateLog::Bytes record;
    try {
      record = log.record(version_ + 1);
      if (version_of_record(record) != version_ + 1) refuse_damaged();
    } catch (const Error& error) {
      if (log.changes() != changes) return true;  // what was read is gone
      if (error.text().operation == "embed.decode") refuse_damaged();
      throw;
    }
    if (log.changes() != changes) return true;
    ++version_;
    return send({.kind = StreamKind::kUpdate, .bytes = whole(std::move(record))});
  }

 private:
  bool send(StreamFrame frame) {
    frame.number = sent_++;
    return stream_.send_pieces(encode_stream_frame(frame));
  }

  [[noreturn]] void refuse_damaged() const {
    throw kFollowErrors.user("", "the log of the primary is damaged",
                             "update " + std::to_string(version_ + 1), "another record",
                             "restore its folder from a copy");
  }

  // `changes`: of the log, before the base was looked for.
  bool send_snapshot(const PersistentShard::Base& base, std::int64_t changes) {
    std::shared_ptr<const RandomAccessFile> file;
    if (!base.path.empty()) {
      try {
        file = RandomAccessFile::open(base.path, {.operation = "embed.follow", .fix = ""});
      } catch (const UserError&) {
        if (shard_.newest_base().path != base.path) return true;  // there is a newer one
        throw;
      }
    }
    const LogRun run = shard_.log().run_of(base.version + 1);
    if (shard_.log().changes() != changes) return true;  // the base may be of another run
    if (!send({.kind = StreamKind::kSnapshot, .version = base.version, .run = run})) return false;
    for (std::uint64_t at = 0; file && at < file->size(); at += kChunkBytes) {
      std::vector<std::byte> chunk(
          static_cast<std::size_t>(std::min<std::uint64_t>(kChunkBytes, file->size() - at)));
      file->read(at, chunk);
      if (!send({.kind = StreamKind::kChunk, .bytes = whole(std::move(chunk))})) return false;
    }
    run_ = run.number, version_ = base.version, digested_ = -1;
    return send({.kind = StreamKind::kSnapshotEnd});
  }

  PersistentShard& shard_;
  FrameStream& stream_;
  const std::function<bool()>& trains_;
  std::uint64_t run_;
  std::int64_t version_;
  std::int64_t digested_ = -1, sent_ = 0;
  std::chrono::steady_clock::time_point reported_{};
};

}  // namespace

FramePieces encode_stream_frame(const StreamFrame& frame) {
  static const auto kNone = std::make_shared<const std::vector<std::byte>>();
  ByteWriter to;
  to.varint(static_cast<std::uint64_t>(frame.kind));
  if (frame.kind == StreamKind::kRefused) {
    to.bytes(kRefusalZeros);
    to.varint(frame.bytes.bytes.size());
  } else {
    proto::UpdateHead head;
    head.set_number(frame.number);
    head.set_version(frame.version);
    head.set_run(frame.run.number);
    head.set_run_begin(frame.run.begin);
    head.set_digest(frame.digest);
    to.text(head.SerializeAsString());
  }
  Checksum sum;
  sum.add(to.out());
  if (frame.kind != StreamKind::kUpdate) sum.add(frame.bytes.bytes);
  FramePieces pieces{.head = to.take(),
                     .fields = frame.bytes.message ? frame.bytes.message : kNone,
                     .checksum = {}};
  const std::uint64_t value = sum.value();
  std::memcpy(pieces.checksum.data(), &value, sizeof(value));
  return pieces;
}

StreamFrame decode_stream_frame(std::shared_ptr<const WireFrame> bytes) {
  const std::string place = "a frame of a stream of updates";
  ByteReader from(*bytes, place);
  const std::uint64_t kind = from.varint();
  if (kind < 1 || kind > static_cast<std::uint64_t>(StreamKind::kIdle))
    from.refuse("there is no such frame");
  StreamFrame frame{.kind = static_cast<StreamKind>(kind)};
  if (frame.kind == StreamKind::kRefused) {
    from.bytes(kRefusalZeros.size());
    if (from.varint() + 8 != from.left()) from.refuse("it has another length");
  } else {
    const auto head = parse_message<proto::UpdateHead>(from.blob(), place);
    if (std::min({head.number(), head.version(), head.run_begin()}) < 0)
      from.refuse("a number is out of range");
    frame.number = head.number();
    frame.version = head.version();
    frame.run = {.number = head.run(), .begin = head.run_begin()};
    frame.digest = head.digest();
  }
  if (from.left() < 8) from.refuse("it is cut off");
  const auto head_bytes = static_cast<std::size_t>(bytes->size() - from.left());
  const std::span<const std::byte> blob = from.bytes(from.left() - 8);
  Checksum sum;
  sum.add(std::span(*bytes).first(head_bytes));
  if (frame.kind != StreamKind::kUpdate) sum.add(blob);
  if (from.fixed64() != sum.value()) from.refuse("it is damaged: its checksum differs");
  frame.bytes = {.message = std::move(bytes), .bytes = blob};
  return frame;
}

FramePieces refused_follower(const Error& error) {
  const std::string text = encode_error(error);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return encode_stream_frame(
      {.kind = StreamKind::kRefused, .bytes = whole({bytes.begin(), bytes.end()})});
}

void serve_updates(PersistentShard& shard, const FollowRequest& request, FrameStream& stream,
                   const std::function<bool()>& trains, const std::function<bool()>& ended) {
  try {
    check(shard, request);
    Sender sender(shard, request, stream, trains);
    while (stream.alive() && !ended())
      if (!sender.step()) return;
  } catch (const std::exception& error) {
    stream.send_pieces(refused_follower(to_error(error)));
  }
}

}  // namespace strata
