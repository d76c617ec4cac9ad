/// Reads and writes tensors in the safetensors format, which `safetensors` and `transformers` read.
///
/// Shapes   u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}},
/// bytes. Threads  a reader is const; any thread. Cost     opening reads the header; a tensor is a
/// view of mapped memory, read when touched. Errors   UserError: a file that is missing, truncated
/// or no safetensors file, ranges that overlap,
///          leave gaps or contradict a shape, an unknown dtype or name; bytes that a digest, where
///          there is one, doesn't know.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/base/mapped_file.h"
#include "strata/train/checkpoint_chunks.h"

namespace strata {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  ///< contiguous, on the host
};

/// Writes the file durably (not yet its name: sync the folder) and returns what it holds.
ChunkDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors);

class SafetensorsFile {
 public:
  /// What is read is verified against `digest`, if there is one; the file must have its size.
  static SafetensorsFile open(const std::string& path, const ChunkDigest* digest = nullptr);

  const std::string& path() const { return file_->path(); }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return entries_.contains(name); }
  at::ScalarType dtype(const std::string& name) const { return entry(name).dtype; }
  const std::vector<std::int64_t>& shape(const std::string& name) const {
    return entry(name).shape;
  }

  /// The bytes in the file, read-only; the mapping lives as long as the tensor. A copy where the
  /// file doesn't align them.
  at::Tensor tensor(const std::string& name) const;

  /// Bytes of elements [begin, end) of a tensor, perhaps not aligned.
  std::span<const std::byte> elements(const std::string& name, std::int64_t begin,
                                      std::int64_t end) const;

 private:
  struct Entry {
    at::ScalarType dtype;
    std::vector<std::int64_t> shape;
    std::size_t begin, end;  // in the file
  };
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}
  const Entry& entry(const std::string& name) const;
  void check_cover(const std::string& path, std::size_t data) const;
  std::span<const std::byte> verified(std::size_t begin, std::size_t end,
                                      const std::string& reader) const;

  std::shared_ptr<const MappedFile> file_;
  std::shared_ptr<ChunkVerifier> verifier_;  // null: no digest
  std::map<std::string, Entry> entries_;
};

}  // namespace strata
