/// Writes and reads one update as the log has it: the parts of all ranks, in rank order.
///
/// A record is a head (bytes of the body, version, checksum of both), a body (the number of parts, each part behind
/// its length) and the body's checksum. The head has a checksum of its own so that a length that was changed does not
/// make the rest look half written.
///
/// Source   write-ahead logging; format: docs/formats.md
/// Errors   SystemError: a record that is cut off or damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace strata {

inline constexpr std::size_t kRecordHeadBytes = 4 + 8 + 8;
inline constexpr std::size_t kRecordTailBytes = 8;

/// A record to write, in pieces, for parts are megabytes. The parts outlive it.
class LogRecordPieces {
 public:
  LogRecordPieces(std::int64_t version, const std::vector<std::span<const std::byte>>& parts);
  std::size_t size() const { return size_; }
  const std::vector<std::span<const std::byte>>& pieces() const { return pieces_; }

 private:
  void own(std::vector<std::byte> bytes);

  std::size_t size_ = 0;
  std::vector<std::span<const std::byte>> pieces_;
  std::deque<std::vector<std::byte>> owned_;
};

struct RecordHead {
  std::uint32_t body_bytes = 0;
  std::int64_t version = 0;
  bool whole = false;  ///< its checksum fits
};
RecordHead parse_record_head(std::span<const std::byte, kRecordHeadBytes> head);

/// A record taken apart; the parts lie in it.
struct LogRecord {
  std::int64_t version;
  std::vector<std::span<const std::byte>> parts;
};
LogRecord parse_log_record(std::span<const std::byte> record);
/// Of a record whose parts nobody looks at here.
std::int64_t version_of_record(std::span<const std::byte> record);

}  // namespace strata
