/// Rounds rows to 16 and 8 bits and converts them back to fp32, vectorised for the processor that
/// runs it (Highway).
///
/// The bits of an element depend on its value, its random word and the scale of the row, never on
/// the width of vectors.
///
/// Source   stochastic rounding: Gupta et al. 2015.
/// Threads  any.
#pragma once

#include <cstdint>

namespace strata::kernels {

/// Computes random words by counter: word e is word e % 4 of philox({e / 4, id, id >> 32, step},
/// key). `words` has room for `count` rounded up to 32.
void draw_words(std::uint64_t key, std::uint64_t id, std::uint32_t step, std::uint32_t* words,
                int count);

/// Rounds each value to one of its two neighbours, with the probabilities that keep its mean;
/// `words` ([width]) decide. A value beyond the largest number becomes the largest number; an
/// infinity stays an infinity.
void round_fp16(const float* values, const std::uint32_t* words, std::uint16_t* out, int width);
void widen_fp16(const std::uint16_t* values, float* out, int width);
/// Rounds to nearest, ties to even. The result is infinite if the value is not finite or rounds to
/// more than 65504.
void nearest_fp16(const float* values, std::uint16_t* out, int width);

/// Rounds to multiples of the returned scale, the largest magnitude / 127. The scale of a row with
/// a value that is not finite is NaN, and the row reads as NaN.
float round_int8(const float* values, const std::uint32_t* words, std::int8_t* out, int width);
void widen_int8(const std::int8_t* values, float scale, float* out, int width);

}  // namespace strata::kernels
