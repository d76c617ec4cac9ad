/// Writes lists of numbers, each after its length, and reads them back: the messages of ranks.
///
/// Errors  InternalError: a list that is longer than what is left.
#pragma once

#include <ATen/core/Tensor.h>

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "strata/base/errors.h"

namespace strata {

class NumberReader {
 public:
  /// `tensor`: int64, in host memory, contiguous; must outlive the reader.
  explicit NumberReader(const at::Tensor& tensor) {
    STRATA_CHECK(tensor.scalar_type() == at::kLong && tensor.is_contiguous(), "serve.number_list");
    numbers_ = {tensor.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(tensor.numel())};
  }

  std::int64_t next() { return take(1)[0]; }
  double real() { return std::bit_cast<double>(next()); }
  std::span<const std::int64_t> list() { return take(next()); }
  bool at_end() const { return numbers_.empty(); }

 private:
  std::span<const std::int64_t> take(std::int64_t count) {
    STRATA_CHECK(count >= 0 && count <= std::ssize(numbers_), "serve.number_list");
    const auto taken = numbers_.first(count);
    numbers_ = numbers_.subspan(count);
    return taken;
  }

  std::span<const std::int64_t> numbers_;
};

template <typename List>
void append_list(std::vector<std::int64_t>& numbers, const List& list) {
  numbers.push_back(std::ssize(list));
  numbers.insert(numbers.end(), list.begin(), list.end());
}

/// As NumberReader::real() reads it.
inline std::int64_t bits_of(double number) { return std::bit_cast<std::int64_t>(number); }

}  // namespace strata
