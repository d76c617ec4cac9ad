// A length is checked against the bytes that are left before anything is reserved for it: a message that
// lies about its size costs no memory.
#include "strata/embed/byte_codec.h"

#include <cstring>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {

void ByteWriter::put(const void* value, std::size_t size) {
  const auto* from = static_cast<const std::byte*>(value);
  out_.insert(out_.end(), from, from + size);
}

void ByteWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<std::byte>(value | 0x80));
  out_.push_back(static_cast<std::byte>(value));
}

void ByteWriter::text(std::string_view text) { blob(std::as_bytes(std::span(text))); }

void ByteWriter::blob(std::span<const std::byte> raw) {
  varint(raw.size());
  bytes(raw);
}

void ByteWriter::bytes(std::span<const std::byte> raw) {
  out_.insert(out_.end(), raw.begin(), raw.end());
}

void ByteWriter::ids(std::span<const std::uint64_t> ascending) {
  varint(ascending.size());
  std::uint64_t last = 0;
  for (const std::uint64_t id : ascending) varint(id - std::exchange(last, id));
}

void ByteWriter::seal() { fixed64(checksum(out_)); }

void ByteReader::refuse(const std::string& what) const {
  throw SystemError({.operation = "embed.decode",
                     .where = where_,
                     .what = what,
                     .expected = "what this version of the program writes"});
}

ByteReader ByteReader::sealed(std::span<const std::byte> bytes, std::string where) {
  ByteReader reader(bytes, std::move(where));
  if (bytes.size() < 8) reader.refuse("it is cut off");
  ByteReader last(bytes.last(8), "");
  reader.bytes_ = bytes.first(bytes.size() - 8);
  if (checksum(reader.bytes_) != last.fixed64())
    reader.refuse("it is damaged: its checksum differs");
  return reader;
}

void ByteReader::get(void* value, std::size_t size) {
  const std::span<const std::byte> from = bytes(size);
  std::memcpy(value, from.data(), size);
}

std::uint32_t ByteReader::fixed32() {
  std::uint32_t value = 0;
  get(&value, 4);
  return value;
}

std::uint64_t ByteReader::fixed64() {
  std::uint64_t value = 0;
  get(&value, 8);
  return value;
}

double ByteReader::real() {
  double value = 0;
  get(&value, 8);
  return value;
}

std::uint64_t ByteReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    if (bytes_.empty()) refuse("it is cut off");
    const auto byte = static_cast<std::uint64_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    if (shift == 63 && byte > 1) refuse("a number is too large");
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      if (byte == 0 && shift > 0) refuse("a number is longer than it needs to be");
      return value;
    }
  }
}

std::int64_t ByteReader::number() {
  const std::uint64_t value = varint();
  if (value > static_cast<std::uint64_t>(INT64_MAX)) refuse("a number is too large");
  return static_cast<std::int64_t>(value);
}

std::span<const std::byte> ByteReader::bytes(std::size_t count) {
  if (count > bytes_.size()) refuse("it is cut off");
  const std::span<const std::byte> taken = bytes_.first(count);
  bytes_ = bytes_.subspan(count);
  return taken;
}

std::span<const std::byte> ByteReader::blob() {
  const std::uint64_t size = varint();
  if (size > bytes_.size()) refuse("it is cut off");
  return bytes(static_cast<std::size_t>(size));
}

std::string ByteReader::text() {
  const std::span<const std::byte> raw = blob();
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

std::vector<std::uint64_t> ByteReader::ids() {
  const std::uint64_t count = varint();
  if (count > bytes_.size()) refuse("it is cut off");  // each takes a byte at least
  std::vector<std::uint64_t> ids(static_cast<std::size_t>(count));
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t difference = varint();
    if (i > 0 && (difference == 0 || last + difference < last)) refuse("ids are not ascending");
    ids[i] = last += difference;
  }
  return ids;
}

void ByteReader::require_end() const {
  if (!bytes_.empty()) refuse("there are bytes behind its end");
}

}  // namespace strata
