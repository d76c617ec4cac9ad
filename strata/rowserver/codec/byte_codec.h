/// Appends numbers to bytes and takes them out again, never beyond their end.
///
/// Numbers are little-endian; varints have 7 bits a byte, the lowest first, in the shortest form. Ids are
/// their number as a varint, then blocks of 128 differences, the first one's from 0: a byte that says how many
/// bits each takes, 1 to 64, and the bits, the lowest first, up to a whole byte.
///
/// Source  blocks of one width: Lemire & Boytsov, "Decoding billions of integers per second through
///         vectorization" (2015).
/// Cost    ids: two nanoseconds each.
/// Errors  ByteReader: SystemError "what is cut off or damaged", with the place it was made with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// That ids() may need of these.
std::size_t most_bytes_of_ids(std::span<const std::uint64_t> ascending);

class ByteWriter {
 public:
  void fixed32(std::uint32_t value) { put(&value, 4); }
  void fixed64(std::uint64_t value) { put(&value, 8); }
  void real(double value) { put(&value, 8); }
  void varint(std::uint64_t value);
  void text(std::string_view text);             ///< with its length
  void blob(std::span<const std::byte> bytes);  ///< with its length
  void bytes(std::span<const std::byte> raw);   ///< as they are
  void ids(std::span<const std::uint64_t> ascending);
  void seal();  ///< appends the checksum of all before

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

  /// Of bytes that seal() closed: checks and leaves out the checksum.
  static ByteReader sealed(std::span<const std::byte> bytes, std::string where);

  std::uint32_t fixed32();
  std::uint64_t fixed64();
  double real();
  std::uint64_t varint();
  std::int64_t number();  ///< a varint that an int64 holds
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
