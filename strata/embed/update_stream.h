/// Sends a shard's updates to whoever follows it, from the version that he has on, as they become durable;
/// a snapshot first where the log does not reach back to it.
///
/// A frame is its kind, its number in the stream, its fields and their checksum:
///
///     snapshot   version, run and the version it began at; chunks of the file; the end
///     run        its number and the version it began at: rows go back to that, if they are further on
///     update     its record as it lies in the log
///     digest     of the rows of the version that was reached
///     status     the version that is durable, twice a second
///     refused    why this shard cannot be followed
///
/// Threads  serve_updates(): one for each stream.
/// Errors   SystemError: a frame that is damaged.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "strata/embed/frame_stream.h"
#include "strata/embed/persistent_shard.h"

namespace strata {

/// Who follows, and what he has.
struct FollowRequest {
  std::uint32_t wire_version = kWireVersion;
  std::uint64_t fingerprint = 0;
  int shard = 0, shards = 1;
  std::uint64_t run = 0;
  std::int64_t version = 0;  ///< -1: nothing that is of use

  std::string text() const;
  static FollowRequest parse(const std::string& text);
};

enum class StreamKind : std::uint8_t {
  kSnapshot = 1,
  kChunk,
  kSnapshotEnd,
  kRun,
  kUpdate,
  kDigest,
  kStatus,
  kRefused
};

struct StreamFrame {
  StreamKind kind = StreamKind::kStatus;
  std::int64_t version = 0;           ///< kSnapshot, kDigest, kStatus
  LogRun run = {};                    ///< kSnapshot, kRun
  std::uint64_t digest = 0;           ///< kDigest
  std::vector<std::byte> bytes = {};  ///< kChunk, kUpdate; kRefused: encode_error()
  std::int64_t number = 0;            ///< from 0 on; kRefused: always 0
};
WireFrame encode_stream_frame(const StreamFrame& frame);
StreamFrame decode_stream_frame(std::span<const std::byte> frame);

/// Returns when the stream breaks or `ended` says so.
void serve_updates(PersistentShard& shard, const std::string& request, FrameStream& stream,
                   const std::function<bool()>& ended);

}  // namespace strata
