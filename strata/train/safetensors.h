/// Reads and writes tensors in the safetensors format, which `safetensors` and `transformers` read.
///
/// Format   u64 little-endian header length, JSON header {name: {dtype, shape, data_offsets}},
/// bytes. Threads  a reader is const; any thread. Cost     opening reads the header; a tensor is a
/// view of mapped memory, read when touched. Errors   UserError: a file that is missing, truncated
/// or no safetensors file, ranges that overlap,
///          leave gaps or contradict a shape, an unknown dtype or name.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/data/durable_file.h"
#include "strata/data/mapped_file.h"

namespace strata {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;  ///< contiguous, on the host
};

/// Writes the file durably (not yet its name: sync the folder) and returns what it holds.
FileDigest write_safetensors(const std::string& path, std::span<const NamedTensor> tensors);

class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::string& path);

  std::vector<std::string> names() const;
  /// The bytes in the file, read-only; the mapping lives as long as the tensor. A copy where the
  /// file doesn't align them.
  at::Tensor tensor(const std::string& name) const;

 private:
  void check_cover(const std::string& path, std::size_t data) const;

  struct Entry {
    at::ScalarType dtype;
    std::vector<std::int64_t> shape;
    std::size_t begin, end;  // in the file
  };
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {}

  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace strata
