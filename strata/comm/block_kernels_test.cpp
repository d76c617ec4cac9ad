// Compares the kernels with loops over single elements, on every instruction set.
#include "strata/comm/block_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "strata/base/every_target_test.h"

namespace strata::kernels {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::uint8_t>;

constexpr std::int64_t kLengths[] = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 127, 128};
constexpr std::uint8_t kUntouched = 0xEE;

struct Format {
  float most;
  int in_byte;  // integers
  void (*pack)(const float*, float, std::uint8_t*, std::int64_t);
  void (*unpack)(const std::uint8_t*, float, float*, std::int64_t);
  void (*add)(const std::uint8_t*, float, float*, std::int64_t);
};
const Format kFormats[] = {{127, 1, pack_int8, unpack_int8, add_int8},
                           {7, 2, pack_int4, unpack_int4, add_int4}};

// Both limits, in turns, at the beginning, in the middle and at the end, and ties.
Floats example(std::int64_t n, float most) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> real(-most, most);
  std::uniform_int_distribution<int> halves(static_cast<int>(-2 * most),
                                            static_cast<int>(2 * most));
  Floats x;
  for (std::int64_t i = 0; i < n; ++i)
    x.push_back(i % 3 == 0 ? static_cast<float>(halves(random)) / 2 : real(random));
  if (n > 0) {
    x.front() = -most;
    x[static_cast<std::size_t>(n / 2)] = most;
    x.back() = n % 2 == 0 ? -most : most;
  }
  return x;
}

Bytes packed_by_elements(const Format& format, const Floats& x) {
  Bytes bytes;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto integer = static_cast<int>(std::nearbyint(x[i]));
    if (format.in_byte == 1) {
      bytes.push_back(static_cast<std::uint8_t>(integer));
    } else if (i % 2 == 0) {
      bytes.push_back(static_cast<std::uint8_t>(integer + 8));
    } else {
      bytes.back() = static_cast<std::uint8_t>(bytes.back() | (integer + 8) << 4);
    }
  }
  return bytes;
}

// The product is rounded before the integer is chosen. Arrays begin at any address.
TEST(BlockKernels, PackTheNearestIntegers) {
  for (const Format& format : kFormats)
    for (const float factor : {4.0f, format.most / 0.37f, 1.1f / 3})
      for (const std::int64_t n : kLengths) {
        Floats x{0}, products;  // the first is not packed
        for (const float integer : example(n, format.most)) {
          float product = (integer / factor) * factor;
          x.push_back(integer / factor);
          products.push_back(std::clamp(product, -format.most, format.most));
          if (products.back() != product) x.back() = 0, products.back() = 0;
        }
        const Bytes expected = packed_by_elements(format, products);
        on_every_target([&] {
          Bytes bytes(expected.size() + 2, kUntouched);
          format.pack(x.data() + 1, factor, bytes.data() + 1, n);
          EXPECT_EQ(bytes.front(), kUntouched) << n;
          EXPECT_EQ(bytes.back(), kUntouched) << n;
          EXPECT_EQ(Bytes(bytes.begin() + 1, bytes.end() - 1), expected)
              << format.most << ' ' << factor << ' ' << n;
        });
      }
}

TEST(BlockKernels, UnpackAndAddWhatIntegersStandFor) {
  constexpr float kScale = 0.37f;
  for (const Format& format : kFormats)
    for (const std::int64_t n : kLengths) {
      const Floats integers = example(n, format.most);
      const Bytes bytes = packed_by_elements(format, integers);
      const Floats before = example(n + 1, 1);
      on_every_target([&] {
        Floats unpacked = before, added = before;
        format.unpack(bytes.data(), kScale, unpacked.data(), n);
        format.add(bytes.data(), kScale, added.data(), n);
        for (std::int64_t i = 0; i < n; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const float value = static_cast<float>(std::nearbyint(integers[at])) * kScale;
          EXPECT_EQ(unpacked[at], value) << n << ' ' << i;
          EXPECT_EQ(added[at], before[at] + value) << n << ' ' << i;
        }
        EXPECT_EQ(unpacked.back(), before.back());
        EXPECT_EQ(added.back(), before.back());
      });
    }
}

TEST(BlockKernels, LargestMagnitudeIsFoundWhereverItIs) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t n : kLengths)
    on_every_target([&] {
      for (std::int64_t at = 0; at < n; ++at) {
        Floats x = example(n, 1);
        x[static_cast<std::size_t>(at)] = -3;
        EXPECT_EQ(largest_magnitude(x.data(), n), 3) << n << ' ' << at;
        for (const float bad : {kInfinity, -kInfinity, kNaN, -kNaN}) {
          x[static_cast<std::size_t>(at)] = bad;
          EXPECT_TRUE(std::isnan(largest_magnitude(x.data(), n))) << n << ' ' << at;
        }
      }
      EXPECT_EQ(largest_magnitude(nullptr, 0), 0);
    });
}

}  // namespace
}  // namespace strata::kernels
