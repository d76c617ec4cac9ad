// Every length is checked against the bytes that are left before memory is reserved for it, so a
// message with a false size costs no memory.
#include "strata/rowserver/codec/byte_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

// ids in a block; all differences of a block have the same width
constexpr std::size_t kBlock = 128;

std::size_t packed_bytes(std::size_t count, int width) {
  return (count * static_cast<std::size_t>(width) + 7) / 8;
}

// Writes whole words: up to 8 bytes after the last bit.
void pack(std::span<const std::uint64_t> numbers, int width, std::byte* out) {
  std::uint64_t word = 0;
  int filled = 0;  // number of valid bits in it
  for (const std::uint64_t number : numbers) {
    word |= number << filled;
    filled += width;
    if (filled < 64) continue;
    std::memcpy(out, &word, 8);
    out += 8, filled -= 64;
    word = filled == 0 ? 0 : number >> (width - filled);
  }
  std::memcpy(out, &word, 8);
}

std::uint64_t word_at(const std::byte* in) {
  std::uint64_t word = 0;
  std::memcpy(&word, in, 8);
  return word;
}

// Reads up to 8 bytes after the last bit.
void unpack(const std::byte* in, int width, std::span<std::uint64_t> numbers) {
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - width);
  std::size_t bit = 0;
  if (width <= 57) {  // fits in the 8 bytes that start at its first byte
    for (std::uint64_t& number : numbers) {
      number = word_at(in + bit / 8) >> bit % 8 & mask;
      bit += static_cast<std::size_t>(width);
    }
    return;
  }
  for (std::uint64_t& number : numbers) {
    const std::size_t shift = bit % 8;
    number = word_at(in + bit / 8) >> shift;
    if (shift > 0) number |= static_cast<std::uint64_t>(in[bit / 8 + 8]) << (64 - shift);
    number &= mask;
    bit += static_cast<std::size_t>(width);
  }
}

}  // namespace

std::size_t most_bytes_of_ids(std::span<const std::uint64_t> ascending) {
  const std::size_t blocks = (ascending.size() + kBlock - 1) / kBlock;
  const int width = ascending.empty() ? 0 : std::bit_width(ascending.back() | 1);
  return 10 + 2 * blocks + packed_bytes(ascending.size(), width);
}

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
  for (std::size_t begin = 0; begin < ascending.size(); begin += kBlock) {
    const auto block = ascending.subspan(begin, std::min(kBlock, ascending.size() - begin));
    std::uint64_t differences[kBlock] = {}, all = 1;
    for (std::size_t i = 0; i < block.size(); ++i)
      all |= differences[i] = block[i] - std::exchange(last, block[i]);
    std::byte packed[kBlock * 8 + 8];
    const int width = std::bit_width(all);
    pack({differences, block.size()}, width, packed);
    out_.push_back(static_cast<std::byte>(width));
    bytes({packed, packed_bytes(block.size(), width)});
  }
}

void ByteWriter::seal() { fixed64(checksum(out_)); }

void ByteReader::refuse(const std::string& what) const {
  throw SystemError({.operation = "embed.decode",
                     .where = where_,
                     .what = what,
                     .expected = "what this version of the program writes",
                     .got = "other bytes",
                     .fix = "start all programs of the run with the same version"});
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
  const std::span<const std::byte> consumed = bytes_.first(count);
  bytes_ = bytes_.subspan(count);
  return consumed;
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
  if (count / 8 > bytes_.size()) refuse("it is cut off");  // each id takes at least one bit
  std::vector<std::uint64_t> ids;
  ids.reserve(std::min<std::size_t>(count, bytes_.size()));
  std::uint64_t last = 0;
  while (ids.size() < count) {
    const std::size_t begin = ids.size();
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kBlock, count - begin));
    const auto width = static_cast<int>(bytes(1).front());
    if (width < 1 || width > 64) refuse("differences of ids have no such width");
    const std::span<const std::byte> raw = bytes(packed_bytes(size, width));
    std::byte packed[kBlock * 8 + 8];
    std::memcpy(packed, raw.data(), raw.size());
    std::memset(packed + raw.size(), 0, 8);
    std::uint64_t differences[kBlock];
    unpack(packed, width, {differences, size});
    bool ascending = true;
    ids.resize(begin + size);
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t id = last + differences[i];
      ascending = ascending && (id > last || begin + i == 0);
      ids[begin + i] = last = id;
    }
    if (!ascending) refuse("ids are not ascending");
  }
  return ids;
}

void ByteReader::require_end() const {
  if (!bytes_.empty()) refuse("there are bytes after its end");
}

}  // namespace strata
