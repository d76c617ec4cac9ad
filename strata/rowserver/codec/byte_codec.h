/// Appends numbers to a byte buffer and reads them back, never beyond the end of the buffer.
///
/// Numbers are little-endian. A varint has 7 bits per byte, the lowest first, in the shortest form.
/// A list of ids is its length as a varint, then blocks of 128 differences between consecutive ids;
/// the first difference is from 0. A block has one byte with the number of bits per difference, 1
/// to 64, and then the bits, the lowest first, padded to a whole byte.
///
/// Source   blocks of one width: Lemire & Boytsov, "Decoding billions of integers per second
///          through vectorization" (2015).
/// Cost     ids: 2 ns each.
/// Errors   ByteReader: SystemError if the bytes are truncated or damaged; it names the place that
///          the constructor was called with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// The largest number of bytes that ids() appends for these ids.
std::size_t most_bytes_of_ids(std::span<const std::uint64_t> ascending);

class ByteWriter {
 public:
  void fixed32(std::uint32_t value) { put(&value, 4); }
  void fixed64(std::uint64_t value) { put(&value, 8); }
  void real(double value) { put(&value, 8); }
  void varint(std::uint64_t value);
  void text(std::string_view text);             ///< with its length in front
  void blob(std::span<const std::byte> bytes);  ///< with its length in front
  void bytes(std::span<const std::byte> raw);   ///< without a length
  void ids(std::span<const std::uint64_t> ascending);
  void seal();  ///< appends the checksum of all bytes so far

  std::vector<std::byte>& out() { return out_; }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  void put(const void* value, std::size_t size);
  std::vector<std::byte> out_;
};

class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  /// Reads bytes that seal() closed: verifies the checksum and removes it.
  static ByteReader sealed(std::span<const std::byte> bytes, std::string where);

  std::uint32_t fixed32();
  std::uint64_t fixed64();
  double real();
  std::uint64_t varint();
  std::int64_t number();  ///< a varint that fits an int64
  std::string text();
  std::span<const std::byte> blob();
  std::span<const std::byte> bytes(std::size_t count);
  std::vector<std::uint64_t> ids();
  std::size_t left() const { return bytes_.size(); }
  void require_end() const;

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  void get(void* value, std::size_t size);
  std::span<const std::byte> bytes_;
  std::string where_;
};

}  // namespace strata
