/// Holds arguments of kernels in tests: arrays on the machine that runs the kernels, and a copy on
/// the host.
///
/// Example  SimtArray x = SimtArray::random(element, n, random);
///          SimtArray y = SimtArray::poisoned(element, n);
///          cuda::gelu(element, x.device(), y.device(), n, nullptr);
///          y.fetch();   // y[i], its bits and the poison around it
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "strata/base/element.h"
#include "strata/device/simt/simt_machine.h"

namespace strata::simt {

/// Bytes on the machine and on the host.
class MachineBytes {
 public:
  explicit MachineBytes(std::vector<unsigned char> bytes)
      : host_(std::move(bytes)), memory_(allocate(host_.size() + 1)) {
    to_machine(memory_, host_.data(), host_.size());
  }
  MachineBytes(MachineBytes&& other) noexcept
      : host_(std::move(other.host_)), memory_(std::exchange(other.memory_, nullptr)) {}
  MachineBytes& operator=(MachineBytes&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~MachineBytes() {
    if (memory_) release(memory_);
  }

  unsigned char* device() { return static_cast<unsigned char*>(memory_); }
  unsigned char* host() { return host_.data(); }
  const unsigned char* host() const { return host_.data(); }
  std::size_t size() const { return host_.size(); }
  void fetch() { from_machine(host_.data(), memory_, host_.size()); }

 private:
  std::vector<unsigned char> host_;
  void* memory_;
};

/// Numbers of any trivial type.
template <typename T>
class SimtVector {
 public:
  explicit SimtVector(const std::vector<T>& values)
      : size_(values.size()), bytes_(copied(values.data(), values.size())) {}
  SimtVector(std::size_t n, T value) : SimtVector(std::vector<T>(n, value)) {}

  T* device() { return reinterpret_cast<T*>(bytes_.device()); }
  T* host() { return reinterpret_cast<T*>(bytes_.host()); }
  void fetch() { bytes_.fetch(); }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t i) const { return reinterpret_cast<const T*>(bytes_.host())[i]; }

 private:
  static std::vector<unsigned char> copied(const T* values, std::size_t n) {
    std::vector<unsigned char> bytes(n * sizeof(T));
    if (n > 0) std::memcpy(bytes.data(), values, bytes.size());
    return bytes;
  }

  std::size_t size_;
  MachineBytes bytes_;
};

/// n elements with `offset` elements before them and eight after them. All are poisoned at first,
/// so that missing writes and writes outside show.
class SimtArray {
 public:
  static SimtArray poisoned(kernels::Element element, std::int64_t n, std::int64_t offset = 0) {
    const std::int64_t bytes = (offset + n + kGuard) * kernels::bytes_of(element);
    return SimtArray(element, n, offset, std::vector<unsigned char>(bytes, kPoison));
  }

  /// `values`, rounded to the element type.
  static SimtArray of(kernels::Element element, std::span<const float> values,
                      std::int64_t offset = 0) {
    const auto n = static_cast<std::int64_t>(values.size());
    const std::int64_t width = kernels::bytes_of(element);
    std::vector<unsigned char> bytes((offset + n + kGuard) * width, kPoison);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t bits = rounded(element, values[static_cast<std::size_t>(i)]);
      std::memcpy(bytes.data() + (offset + i) * width, &bits, static_cast<std::size_t>(width));
    }
    return SimtArray(element, n, offset, std::move(bytes));
  }

  /// Normal numbers times `scale`.
  static SimtArray random(kernels::Element element, std::int64_t n, std::mt19937& generator,
                          float scale = 1, std::int64_t offset = 0) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = normal(generator);
    return of(element, values, offset);
  }

  kernels::Element element() const { return element_; }
  std::int64_t size() const { return n_; }
  void* device() { return bytes_.device() + before(); }
  float* device_floats() { return static_cast<float*>(device()); }
  void* host() { return bytes_.host() + before(); }
  float* host_floats() { return static_cast<float*>(host()); }
  void fetch() { bytes_.fetch(); }

  std::uint32_t bits(std::int64_t i) const {
    const std::int64_t width = kernels::bytes_of(element_);
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes_.host() + before() + i * width, static_cast<std::size_t>(width));
    return bits;
  }
  float operator[](std::int64_t i) const { return widened(element_, bits(i)); }

  std::vector<float> floats() const {
    std::vector<float> values(static_cast<std::size_t>(n_));
    for (std::int64_t i = 0; i < n_; ++i) values[static_cast<std::size_t>(i)] = (*this)[i];
    return values;
  }

  /// Whether nothing before the first and after the last element was written.
  bool is_whole() const {
    const std::int64_t begin = before(), end = begin + n_ * kernels::bytes_of(element_);
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(bytes_.size()); ++i)
      if ((i < begin || i >= end) && bytes_.host()[i] != kPoison) return false;
    return true;
  }

  static float widened(kernels::Element element, std::uint32_t bits) {
    if (element == kernels::Element::kBf16) bits <<= 16;
    if (element == kernels::Element::kFp16) {
      const std::uint32_t exponent = bits >> 10 & 31u, fraction = bits & 1023u;
      const double value = exponent == 31  ? (fraction ? NAN : INFINITY)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, int(exponent) - 25);
      return static_cast<float>(bits & 0x8000u ? -value : value);
    }
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  /// Rounds by binary search, unlike the kernels.
  static std::uint32_t rounded(kernels::Element element, float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    if (element == kernels::Element::kFp32) return bits;
    const std::uint32_t sign = bits >> 16 & 0x8000u;
    std::uint32_t low = 0, high = element == kernels::Element::kBf16 ? 0x7F80u : 0x7C00u;
    const double magnitude = std::abs(static_cast<double>(value));
    while (high - low > 1) {
      const std::uint32_t middle = (low + high) / 2;
      (widened(element, middle) <= magnitude ? low : high) = middle;
    }
    const double below = magnitude - widened(element, low),
                 above = widened(element, high) - magnitude;
    const bool up = below > above || (below == above && low % 2 == 1);
    return sign | (up ? high : low);
  }

 private:
  static constexpr std::int64_t kGuard = 8;
  static constexpr unsigned char kPoison = 0xFF;  // a NaN in every type

  SimtArray(kernels::Element element, std::int64_t n, std::int64_t offset,
            std::vector<unsigned char> bytes)
      : element_(element), n_(n), offset_(offset), bytes_(std::move(bytes)) {}
  std::int64_t before() const { return offset_ * kernels::bytes_of(element_); }

  kernels::Element element_;
  std::int64_t n_, offset_;
  MachineBytes bytes_;
};

/// Both hold the same bits (any NaNs are equal), and nothing around them was written.
inline testing::AssertionResult same_bits(const SimtArray& found, const SimtArray& expected) {
  if (!found.is_whole()) return testing::AssertionFailure() << "written outside";
  if (found.size() != expected.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::int64_t i = 0; i < found.size(); ++i) {
    if (found.bits(i) == expected.bits(i)) continue;
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    return testing::AssertionFailure() << "element " << i << " of " << found.size() << " is "
                                       << found[i] << ", expected " << expected[i];
  }
  return testing::AssertionSuccess();
}

/// The distance between neighbouring numbers of the type at `value`.
inline double ulp_of(kernels::Element element, double value) {
  const int digits = element == kernels::Element::kFp32   ? 24
                     : element == kernels::Element::kBf16 ? 8
                                                          : 11;
  const int smallest = element == kernels::Element::kFp16 ? -24 : -149;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - digits, smallest));
}

/// Every element is within `ulps` or `absolute` of the expected value; nothing around them was
/// written.
template <typename Expected>
testing::AssertionResult close(const SimtArray& found, const Expected& expected, double ulps,
                               double absolute = 0) {
  if (!found.is_whole()) return testing::AssertionFailure() << "written outside";
  for (std::int64_t i = 0; i < found.size(); ++i) {
    const double right = expected[i], allowed = ulps * ulp_of(found.element(), right) + absolute;
    if (std::abs(found[i] - right) <= allowed) continue;
    return testing::AssertionFailure()
           << "element " << i << " of " << found.size() << " is " << found[i] << ", expected "
           << right << " within " << allowed;
  }
  return testing::AssertionSuccess();
}

}  // namespace strata::simt
