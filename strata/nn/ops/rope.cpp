#include "strata/nn/ops/rope.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "strata/nn/kernels/llama_kernels.h"
#include "strata/nn/ops/fp32_pieces.h"
#include "strata/nn/ops/parallel.h"

namespace strata {

namespace {

// A pair that turns fewer than `low` times in the original context is slowed by the whole factor,
// one that turns more than `high` times not at all.
double stretched(double frequency, const RopeOptions& options) {
  if (options.factor == 1) return frequency;
  const double low = options.low_frequency_factor, high = options.high_frequency_factor;
  const double turns =
      static_cast<double>(options.original_context) * frequency / (2 * std::numbers::pi);
  if (turns < low) return frequency / options.factor;
  if (turns > high) return frequency;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * frequency / options.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeOptions& options, std::int64_t width) {
  std::vector<float> frequencies(width / 2);
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(width);
    frequencies[i] = static_cast<float>(stretched(std::pow(options.theta, -exponent), options));
  }
  return frequencies;
}

at::Tensor rope_table(const RopeOptions& options, std::int64_t width, std::int64_t length,
                      std::int64_t first) {
  const std::vector<float> frequencies = rope_frequencies(options, width);
  const std::int64_t half = width / 2;
  at::Tensor table = at::empty({length, width}, at::kFloat);
  float* to = table.data_ptr<float>();
  parallel_rows(length, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t position = begin; position < end; ++position) {
      for (std::int64_t i = 0; i < half; ++i) {
        // In fp32, as the published weights met it in training.
        const float angle = static_cast<float>(first + position) * frequencies[i];
        to[position * width + i] = std::cos(angle);
        to[position * width + half + i] = std::sin(angle);
      }
    }
  });
  return table;
}

namespace {

void turn_tokens(const at::Tensor& x, const float* angles, RopeTurn turn) {
  const std::int64_t length = x.size(1), heads = x.size(2), width = x.size(3);
  const std::int64_t sample = x.stride(0), token = x.stride(1);
  float* data = x.data_ptr<float>();
  const float direction = turn == RopeTurn::kForward ? 1.0f : -1.0f;
  parallel_rows(x.size(0) * length, heads * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* at = angles + row % length * width;
      kernels::rotate(data + row / length * sample + row % length * token, at, at + width / 2,
                      heads, width, direction);
    }
  });
}

}  // namespace

void rope(const at::Tensor& x, const at::Tensor& table, RopeTurn turn) {
  const float* angles = table.const_data_ptr<float>();
  if (x.scalar_type() == at::kFloat) return turn_tokens(x, angles, turn);
  const std::int64_t length = x.size(1), width = table.size(1);
  const std::int64_t piece = std::max<std::int64_t>(1, kFp32Piece / (x.size(2) * width));
  for (std::int64_t sample = 0; sample < x.size(0); ++sample) {
    for (std::int64_t first = 0; first < length; first += piece) {
      const at::Tensor tokens =
          x.variable_data().narrow(0, sample, 1).narrow(1, first, std::min(piece, length - first));
      const at::Tensor wide = tokens.to(at::kFloat).contiguous();
      turn_tokens(wide, angles + first * width, turn);
      tokens.copy_(wide);
    }
  }
}

}  // namespace strata
