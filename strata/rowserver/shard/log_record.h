/// Encodes and decodes one update in the log: the parts of all ranks, in rank order.
///
/// A record is a head (bytes of the body, version, checksum of both), a body (the number of parts,
/// then each part with its length in front), and the body's checksum. The head has its own
/// checksum, so that a damaged length is not mistaken for an incomplete record.
///
/// Source   write-ahead logging; format: docs/formats.md
/// Errors   SystemError: a record that is truncated or damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace strata {

inline constexpr std::size_t kRecordHeadBytes = 4 + 8 + 8;
inline constexpr std::size_t kRecordTailBytes = 8;

/// A record to write, in pieces, because parts have megabytes. The parts must outlive it.
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
  bool whole = false;  ///< its checksum is correct
};
RecordHead parse_record_head(std::span<const std::byte, kRecordHeadBytes> head);

/// A decoded record; its parts are views of the record's bytes.
struct LogRecord {
  std::int64_t version;
  std::vector<std::span<const std::byte>> parts;
};
LogRecord parse_log_record(std::span<const std::byte> record);
/// Returns the version without decoding the parts.
std::int64_t version_of_record(std::span<const std::byte> record);

}  // namespace strata
