#include "strata/comm/sign_bits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "strata/device/parallel.h"

namespace strata {
namespace {

constexpr std::int64_t kSumBlock = 1024;  // elements of a sum
constexpr std::int64_t kLanes = 8;        // sums of a block, so that they can be made at once
constexpr std::int64_t kLine = 512;  // elements: threads write to different cache lines of bits

double block_sum(std::span<const float> x) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += std::fabs(x[i + lane]);
  for (std::size_t lane = 0; i < x.size(); ++i, ++lane) lanes[lane] += std::fabs(x[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// The signs of every byte.
using Signs = std::array<float, 8>;
constexpr std::array<Signs, 256> kSigns = [] {
  std::array<Signs, 256> signs{};
  for (unsigned byte = 0; byte < 256; ++byte)
    for (unsigned i = 0; i < 8; ++i) signs[byte][i] = (byte >> i & 1) != 0 ? -1.0f : 1.0f;
  return signs;
}();

// Calls f(element, its sign) for all elements; the compiler makes vectors of eight.
template <typename F>
void for_each_sign(const std::uint8_t* bits, std::int64_t elements, F f) {
  parallel_ranges(
      elements, kLeastElements,
      [&](std::int64_t begin, std::int64_t end) {
        std::int64_t i = begin;
        for (; i + 8 <= end; i += 8) {
          const Signs& signs = kSigns[bits[i / 8]];
          for (int k = 0; k < 8; ++k) f(i + k, signs[k]);
        }
        for (; i < end; ++i) f(i, kSigns[bits[i / 8]][i % 8]);
      },
      kLine);
}

}  // namespace

double sum_of_magnitudes(std::span<const float> x) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<double> blocks(static_cast<std::size_t>((n + kSumBlock - 1) / kSumBlock));
  parallel_ranges(static_cast<std::int64_t>(blocks.size()), kLeastElements / kSumBlock,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i)
                      blocks[static_cast<std::size_t>(i)] = block_sum(x.subspan(
                          static_cast<std::size_t>(i * kSumBlock),
                          static_cast<std::size_t>(std::min(kSumBlock, n - i * kSumBlock))));
                  });
  double sum = 0;
  for (const double block : blocks) sum += block;
  return sum;
}

void take_signs(std::span<float> x, float scale, std::uint8_t* bits) {
  parallel_ranges(
      static_cast<std::int64_t>(x.size()), kLeastElements,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t byte = begin; byte < end; byte += 8) {
          unsigned packed = 0;
          for (std::int64_t i = byte; i < std::min(byte + 8, end); ++i) {
            float& value = x[static_cast<std::size_t>(i)];
            const bool negative = value < 0;
            packed |= static_cast<unsigned>(negative) << (i - byte);
            value -= negative ? -scale : scale;
          }
          bits[byte / 8] = static_cast<std::uint8_t>(packed);
        }
      },
      kLine);
}

void add_signs(const std::uint8_t* bits, float scale, std::span<float> sum) {
  float* const to = sum.data();
  for_each_sign(bits, static_cast<std::int64_t>(sum.size()),
                [=](std::int64_t i, float sign) { to[i] += sign * scale; });
}

void set_to_signs(const std::uint8_t* bits, float scale, std::span<float> x) {
  float* const to = x.data();
  for_each_sign(bits, static_cast<std::int64_t>(x.size()),
                [=](std::int64_t i, float sign) { to[i] = sign * scale; });
}

}  // namespace strata
