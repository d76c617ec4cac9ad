/// Rounds rows to 16 and 8 bit, and widens them again, vectorised for the machine that runs it (Highway).
///
/// An element's bits depend on its own value, its random word and the row's scale, never on the width of vectors.
///
/// Source   stochastic rounding: Gupta et al. 2015.
/// Threads  any.
#pragma once

#include <cstdint>

namespace strata::kernels {

/// Random words by counter: word e is word e % 4 of philox({e / 4, id, id >> 32, step}, key). `words` has
/// room for `count` rounded up to 32.
void draw_words(std::uint64_t key, std::uint64_t id, std::uint32_t step, std::uint32_t* words,
                int count);

/// To one of the two neighbours, up as often as the distance says; `words` decide, [width]. Beyond the
/// largest number: the largest. An infinity stays one.
void round_fp16(const float* values, const std::uint32_t* words, std::uint16_t* out, int width);
void widen_fp16(const std::uint16_t* values, float* out, int width);
/// To the nearest, of two the even one. Infinity: what is not finite, or rounds to more than 65504.
void nearest_fp16(const float* values, std::uint16_t* out, int width);

/// To multiples of the returned scale, the largest magnitude / 127. A row that isn't finite has the
/// scale NaN and reads as NaN.
float round_int8(const float* values, const std::uint32_t* words, std::int8_t* out, int width);
void widen_int8(const std::int8_t* values, float scale, float* out, int width);

}  // namespace strata::kernels
