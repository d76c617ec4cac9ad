/// Sends a shard's updates to whoever follows it, from the version that he has on, as they become durable;
/// a snapshot first where the log does not reach back to it.
///
/// Of every frame the same fields, whose kinds leave those at 0 that they have no use for: kind, number in the
/// stream, version (varints), number of the run (8 bytes), the version it began at (varint), digest (8 bytes),
/// then bytes with their length, then the checksum of all of it. By kind:
///
///     snapshot   version, run: the file follows in chunks
///     chunk      bytes: of that file
///     end        of that file
///     run        run: rows go back to where it began, if they are further on
///     update     bytes: its record as it lies in the log, which the checksum leaves out: it has its own
///     digest     version, digest: of the rows of the version that was reached
///     status     version: that is durable, twice a second, while somebody trains
///     idle       the same, while nobody does
///     refused    bytes: why this shard cannot be followed; its number is 0
///
/// Threads  serve_updates(): one for each stream.
/// Errors   SystemError: a frame that is damaged.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "strata/base/errors.h"
#include "strata/rowserver/shard/persistent_shard.h"
#include "strata/rowserver/wire/frame_stream.h"

namespace strata {

/// Identifies a replica and what it has.
struct FollowRequest {
  std::uint32_t wire_version = kWireVersion;
  std::uint64_t fingerprint = 0;
  int shard = 0, shards = 1;
  std::uint64_t run = 0;
  std::int64_t version = 0;  ///< -1: no rows that are of use
};

enum class StreamKind : std::uint8_t {
  kSnapshot = 1,
  kChunk,
  kSnapshotEnd,
  kRun,
  kUpdate,
  kDigest,
  kStatus,
  kRefused,
  kIdle
};

struct StreamFrame {
  StreamKind kind = StreamKind::kStatus;
  std::int64_t version = 0;  ///< kSnapshot, kDigest, kStatus, kIdle
  LogRun run = {};           ///< kSnapshot, kRun
  std::uint64_t digest = 0;  ///< kDigest
  MessageBytes bytes = {};   ///< kChunk, kUpdate; kRefused: encode_error()
  std::int64_t number = 0;   ///< from 0 on; kRefused: always 0
};
FramePieces encode_stream_frame(const StreamFrame& frame);
/// Its bytes keep the frame.
StreamFrame decode_stream_frame(std::shared_ptr<const WireFrame> frame);

/// Tells a follower why it is refused.
FramePieces refused_follower(const Error& error);

/// Returns when the stream breaks or `ended` says so, or has told the follower why it ends. `trains`: whether somebody
/// makes updates.
void serve_updates(PersistentShard& shard, const FollowRequest& request, FrameStream& stream,
                   const std::function<bool()>& trains, const std::function<bool()>& ended);

}  // namespace strata
