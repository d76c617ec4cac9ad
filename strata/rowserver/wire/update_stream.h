/// Sends a shard's updates to a follower, from the follower's version on, as they become durable;
/// a snapshot first if the log does not reach back to that version.
///
/// A frame is its kind (a varint), an UpdateHead (rows.proto) with its length, bytes, and the
/// checksum of all of it. A kind leaves fields at 0 that it does not use:
///
///     snapshot   version, run: the file follows in chunks
///     chunk      bytes: a piece of that file
///     end        the file is complete
///     run        run: rows revert to its begin if they are newer
///     update     bytes: the record in the log, which has its own checksum and is left out of the
///                frame's
///     digest     version, digest: of the rows of the version that was reached
///     status     version: the durable one, twice a second, while ranks train
///     idle       the same, while no rank trains
///     refused    the reason why this shard cannot be followed
///
/// The layout of a refusal never changes, so that replicas of every version can read it: its kind,
/// 19 zero bytes, encode_error() with its length, the checksum.
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

/// Identifies a replica and its version.
struct FollowRequest {
  std::uint32_t wire_version = kWireVersion;
  std::uint64_t fingerprint = 0;
  int shard = 0, shards = 1;
  std::uint64_t run = 0;
  std::int64_t version = 0;  ///< -1: no usable rows
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
  std::int64_t number = 0;   ///< from 0 on; kRefused: 0
};
FramePieces encode_stream_frame(const StreamFrame& frame);
/// The bytes of the result share ownership of the frame.
StreamFrame decode_stream_frame(std::shared_ptr<const WireFrame> frame);

/// The frame that refuses a follower.
FramePieces refused_follower(const Error& error);

/// Returns when the stream breaks, `ended` returns true, or the follower is refused. `trains`:
/// whether ranks make updates.
void serve_updates(PersistentShard& shard, const FollowRequest& request, FrameStream& stream,
                   const std::function<bool()>& trains, const std::function<bool()>& ended);

}  // namespace strata
