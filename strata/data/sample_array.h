/// Samples by their numbers, such as those of an array file or of a folder of images.
///
/// Threads  const, any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace strata {

class SampleArray {
 public:
  virtual ~SampleArray() = default;

  virtual const std::string& path() const = 0;
  virtual const std::vector<std::int64_t>& shape() const = 0;  ///< [samples, ...]
  virtual at::ScalarType dtype() const = 0;
  /// Copies these samples: [numbers.size(), ...].
  virtual at::Tensor samples(std::span<const std::int64_t> numbers) const = 0;

  std::int64_t count() const { return shape()[0]; }
  std::int64_t sample_numel() const {
    std::int64_t numel = 1;
    for (std::size_t i = 1; i < shape().size(); ++i) numel *= shape()[i];
    return numel;
  }
};

}  // namespace strata
