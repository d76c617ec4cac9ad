/// Reads an array of samples from a file: `.npy` of NumPy, safetensors, or IDX, the format of
/// MNIST.
///
/// The first bytes of the file say which. A `.npy` holds numbers in little-endian order by rows; a
/// safetensors file holds one tensor; IDX holds bytes. The first dimension is the samples.
///
/// Source   NumPy's numpy.lib.format, versions 1 to 3; LeCun, Cortes, Burges: the MNIST database
/// Threads  const, any thread.
/// Cost     open() reads the header; samples() reads the bytes of the samples.
/// Errors   UserError `[data.array]`: another format, a type or order that is not read, a size that
///          is not the header's, a file that has become shorter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/base/random_access_file.h"
#include "strata/data/sample_array.h"

namespace strata {

/// Where the numbers lie in a file, and what they are.
struct ArrayHeader {
  std::uint64_t first_byte = 0;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

class ArrayFile final : public SampleArray {
 public:
  static ArrayFile open(const std::string& path);

  const std::string& path() const override { return file_->path(); }
  const std::vector<std::int64_t>& shape() const override { return header_.shape; }
  at::ScalarType dtype() const override { return header_.dtype; }
  at::Tensor samples(std::span<const std::int64_t> numbers) const override;

 private:
  ArrayFile() = default;

  std::shared_ptr<const RandomAccessFile> file_;
  ArrayHeader header_;
};

}  // namespace strata
