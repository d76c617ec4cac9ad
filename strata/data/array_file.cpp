#include "strata/data/array_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

#include "strata/data/array_formats.h"
#include "strata/device/device.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are little-endian");

const FileUse kArrayUse{.operation = "data.array", .fix = "name a .npy, safetensors or IDX file"};
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

// Refuses sizes whose product cannot be counted.
void require_countable(const std::string& path, const ArrayHeader& header) {
  double elements = 1;
  for (const std::int64_t size : header.shape) elements *= static_cast<double>(size);
  if (elements > static_cast<double>(kMostElements) || elements < 1)
    throw kArrayErrors.user(path, "the array has no elements, or more than can be counted",
                            "1 to 2^50 elements", "another number");
}

}  // namespace

ArrayFile ArrayFile::open(const std::string& path) {
  ArrayFile array;
  array.file_ = RandomAccessFile::open(path, kArrayUse);
  array.header_ = read_array_header(*array.file_);
  const ArrayHeader& header = array.header_;
  if (header.shape.empty())
    throw kArrayErrors.user(path, "the array has no dimension of samples", "[samples, ...]",
                            "a single number");
  require_countable(path, header);
  const std::uint64_t bytes = static_cast<std::uint64_t>(array.count() * array.sample_numel()) *
                              c10::elementSize(header.dtype);
  if (array.file_->size() - header.first_byte != bytes)
    throw kArrayErrors.user(path, "the file has another size than its header says",
                            std::to_string(header.first_byte + bytes) + " bytes",
                            std::to_string(array.file_->size()) + " bytes");
  return array;
}

at::Tensor ArrayFile::samples(std::span<const std::int64_t> numbers) const {
  std::vector<std::int64_t> shape = header_.shape;
  shape[0] = std::ssize(numbers);
  at::Tensor samples = at::empty(shape, host_options(header_.dtype));
  const std::size_t sample_bytes =
      static_cast<std::size_t>(sample_numel()) * c10::elementSize(header_.dtype);
  auto* out = static_cast<std::byte*>(samples.mutable_data_ptr());
  // Adjacent samples are read at once.
  for (std::size_t i = 0, count = 0; i < numbers.size(); i += count) {
    count = 1;
    while (i + count < numbers.size() &&
           numbers[i + count] == numbers[i] + static_cast<std::int64_t>(count))
      ++count;
    STRATA_CHECK(numbers[i] >= 0 && numbers[i + count - 1] < header_.shape[0], "data.array");
    file_->read(header_.first_byte + static_cast<std::uint64_t>(numbers[i]) * sample_bytes,
                {out + i * sample_bytes, count * sample_bytes});
  }
  return samples;
}

}  // namespace strata
