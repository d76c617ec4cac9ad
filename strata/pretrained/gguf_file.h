/// Reads the container of a GGUF file: its metadata, and the types, shapes and places of its
/// tensors.
///
/// Shapes   as in Hugging Face's files, row-major: the reverse of the order in the file.
/// Threads  const, any thread.
/// Cost     open() reads the header once; memory below the header's size. Lists are read on
///          request.
/// Errors   UserError that names the file and the key or tensor: no GGUF file, another version or
///          byte order, truncated, sizes or places beyond the file, a value of another kind.
/// Source   docs/gguf.md of github.com/ggml-org/ggml, versions 2 and 3, little endian.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "strata/base/random_access_file.h"

namespace strata {

/// Whether `path` is a file that is named like a GGUF file or begins like one.
bool is_gguf(const std::string& path);

/// A list in the metadata, by its place in the file.
struct GgufList {
  std::uint32_t type = 0;  ///< of the elements
  std::uint64_t count = 0;
  std::uint64_t begin = 0;
  friend bool operator==(const GgufList&, const GgufList&) = default;
};

/// float stays apart from double, so that its shortest decimal can be found.
using GgufValue = std::variant<bool, std::int64_t, float, double, std::string, GgufList>;

struct GgufTensor {
  std::vector<std::int64_t> shape;
  std::uint32_t type = 0;   ///< find_block_type() of gguf_blocks.h knows the supported ones
  std::uint64_t begin = 0;  ///< in the file

  std::int64_t numel() const;
};

class GgufFile {
 public:
  static std::shared_ptr<const GgufFile> open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const std::map<std::string, GgufValue>& metadata() const { return metadata_; }
  const std::map<std::string, GgufTensor>& tensors() const { return tensors_; }

  bool has(const std::string& key) const { return metadata_.contains(key); }
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::int64_t integer(const std::string& key, std::int64_t minimum = 0,
                       std::int64_t maximum = std::numeric_limits<std::int32_t>::max()) const;
  /// A float is the double with the same shortest decimal: 1e-5, not 9.99999974e-06.
  double real(const std::string& key) const;

  std::vector<std::string> texts(const std::string& key) const;      ///< a list of strings
  std::vector<std::int32_t> integers(const std::string& key) const;  ///< a list of 32-bit numbers
  std::vector<float> reals(const std::string& key) const;            ///< a list of 32-bit floats

  /// Fills `out` from byte `begin` of the file on.
  void read(std::uint64_t begin, std::span<std::byte> out) const { file_->read(begin, out); }

  /// Throws UserError about a key, a tensor or, with an empty `name`, the whole file.
  [[noreturn]] void refuse(const std::string& name, const std::string& what,
                           const std::string& expected, const std::string& got,
                           const std::string& fix = "") const;

 private:
  class Cursor;
  explicit GgufFile(std::shared_ptr<const RandomAccessFile> file) : file_(std::move(file)) {}
  void read_header();
  void read_metadata(Cursor& cursor, std::uint64_t count);
  void read_tensors(Cursor& cursor, std::uint64_t count);
  void check_places() const;
  const GgufValue& value(const std::string& key) const;
  template <typename T>
  const T& value_of(const std::string& key, const char* kind) const;
  const GgufList& list(const std::string& key, std::uint32_t type, const char* kind) const;
  template <typename T>
  std::vector<T> numbers(const std::string& key, const GgufList& list) const;

  std::shared_ptr<const RandomAccessFile> file_;
  std::map<std::string, GgufValue> metadata_;
  std::map<std::string, GgufTensor> tensors_;
};

}  // namespace strata
