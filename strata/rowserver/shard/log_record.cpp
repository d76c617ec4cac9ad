#include "strata/rowserver/shard/log_record.h"

#include <string>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/rowserver/codec/byte_codec.h"

namespace strata {

LogRecordPieces::LogRecordPieces(std::int64_t version,
                                 const std::vector<std::span<const std::byte>>& parts) {
  std::vector<ByteWriter> lengths(parts.size() + 1);
  lengths.front().varint(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) lengths[i].varint(parts[i].size());
  std::size_t body = lengths.back().out().size();
  for (std::size_t i = 0; i < parts.size(); ++i) body += lengths[i].out().size() + parts[i].size();
  ByteWriter head;
  head.fixed32(static_cast<std::uint32_t>(body));
  head.fixed64(static_cast<std::uint64_t>(version));
  head.seal();
  size_ = kRecordHeadBytes + body + kRecordTailBytes;
  own(head.take());
  Checksum sum;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    own(lengths[i].take());
    sum.add(pieces_.back());
    if (i == parts.size()) break;
    sum.add(parts[i]);
    pieces_.push_back(parts[i]);
  }
  ByteWriter tail;
  tail.fixed64(sum.value());
  own(tail.take());
}

void LogRecordPieces::own(std::vector<std::byte> bytes) {
  owned_.push_back(std::move(bytes));
  pieces_.emplace_back(owned_.back());
}

RecordHead parse_record_head(std::span<const std::byte, kRecordHeadBytes> head) {
  ByteReader from(head, "the head of a record");
  RecordHead parsed;
  parsed.body_bytes = from.fixed32();
  parsed.version = static_cast<std::int64_t>(from.fixed64());
  parsed.whole = from.fixed64() == checksum(head.first<kRecordHeadBytes - 8>());
  return parsed;
}

std::int64_t version_of_record(std::span<const std::byte> record) {
  ByteReader from(record, "a record of updates");
  const RecordHead head = parse_record_head(from.bytes(kRecordHeadBytes).first<kRecordHeadBytes>());
  if (!head.whole) from.refuse("it is damaged");
  if (from.left() != head.body_bytes + kRecordTailBytes) from.refuse("it has another length");
  return head.version;
}

LogRecord parse_log_record(std::span<const std::byte> record) {
  LogRecord parsed{.version = version_of_record(record), .parts = {}};
  ByteReader tail(record.subspan(kRecordHeadBytes), "a record of updates");
  const std::span<const std::byte> body = tail.bytes(tail.left() - kRecordTailBytes);
  if (tail.fixed64() != checksum(body)) tail.refuse("it is damaged");
  ByteReader from(body, "update " + std::to_string(parsed.version));
  const std::uint64_t count = from.varint();
  if (count > from.left()) from.refuse("it is cut off");
  for (std::uint64_t i = 0; i < count; ++i) parsed.parts.push_back(from.blob());
  from.require_end();
  return parsed;
}

}  // namespace strata
