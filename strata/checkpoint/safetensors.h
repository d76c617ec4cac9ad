/// Reads and writes tensors in the safetensors format, which `safetensors` and `transformers` read.
///
/// Shapes   u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}},
///          bytes.
/// Threads  a reader is const; any thread.
/// Cost     opening reads the header; elements are read from the file on request.
/// Errors   UserError: a file that is missing, truncated or no safetensors file; ranges that
///          overlap, leave gaps or contradict a shape; an unknown dtype or name; bytes that
///          contradict the digest, if there is one.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/base/json_document.h"
#include "strata/checkpoint/chunk_digest.h"
#include "strata/checkpoint/tensor_file.h"

namespace strata {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  ///< contiguous, on the host
};

/// Writes and syncs the file (not its name: sync the folder) and returns its digest.
ChunkDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                              FileSystem& files = posix_file_system());

class SafetensorsFile : public TensorFile {
 public:
  /// Verifies reads against `digest`, if there is one; the file must have its size.
  static SafetensorsFile open(const std::string& path, const ChunkDigest* digest = nullptr);

  const std::string& path() const override { return file_->path(); }
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const { return entries_.contains(name); }
  at::ScalarType dtype(const std::string& name) const override { return entry(name).dtype; }
  const std::vector<std::int64_t>& shape(const std::string& name) const override {
    return entry(name).shape;
  }
  void read(const std::string& name, std::int64_t begin, std::span<std::byte> out) const override;

 private:
  struct Entry {
    at::ScalarType dtype;
    std::vector<std::int64_t> shape;
    std::size_t begin, end;  // in the file
  };
  explicit SafetensorsFile(std::shared_ptr<const VerifiedFile> file) : file_(std::move(file)) {}
  Entry read_entry(const JsonPart& entry, std::size_t data) const;
  const Entry& entry(const std::string& name) const;
  void check_cover(std::size_t data) const;

  std::shared_ptr<const VerifiedFile> file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace strata
