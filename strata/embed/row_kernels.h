/// Computes with rows, vectorised for the machine that runs it (Highway).
///
/// An element's bits depend on its own values and on constants alone, never on the width of vectors:
/// operations are those that IEEE 754 rounds correctly, none are fused, sums over a row have a fixed
/// order, and a NaN is written as 0x7FC00000.
///
/// Source   optimizers: Adagrad (Duchi et al. 2011), row-wise Adagrad (Gupta et al. 2014), Adam (Kingma
///          & Ba 2015), AdamW (Loshchilov & Hutter 2019), FTRL-proximal (McMahan et al. 2013);
///          stochastic rounding: Gupta et al. 2015.
/// Threads  any.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "strata/embed/feature.h"
#include "strata/embed/row_index.h"

namespace strata::kernels {

/// One update of a row, from values w, gradient g and states:
///
///     SGD, Adagrad, Adam   g = g + weight_decay w
///     SGD          w = w - rate g
///     momentum     b = momentum b + g,  w = w - rate b
///     Adagrad      s = s + g g,  w = w - rate g / (sqrt(s) + epsilon)
///     row-wise     s = s + mean(g g), one s a row
///     Adam, AdamW  m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g g
///                  w = w kept - size m / (sqrt(v) root_scale + epsilon)
///                  size = rate / (1 - beta1^t), root_scale = 1 / sqrt(1 - beta2^t), kept = 1, AdamW's
///                  1 - rate weight_decay; t is the number of updates of this row, this one included
///     FTRL         z = z + g - (sqrt(n + g g) - sqrt(n)) / rate w,  n = n + g g
///                  w = 0 where |z| <= l1, else (sign(z) l1 - z) / ((sqrt(n) + epsilon) / rate + l2)
struct RowUpdate {
  RowOptimizerKind kind = RowOptimizerKind::kAdagrad;
  float rate = 0;
  float epsilon = 0;
  float weight_decay = 0;
  float momentum = 0;
  float mean_kept = 0, mean_share = 0;
  float square_kept = 0, square_share = 0;
  float size = 0, root_scale = 0, kept = 1;
  float l1 = 0, l2 = 0;
};

/// `out` becomes the new values; it may be `values`.
void update_row(const RowUpdate& update, const float* values, const float* gradient, float* states,
                float* out, int width);

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

/// Where the search for an id begins.
struct SearchStart {
  std::uint64_t chunks = 0;  ///< RowIndex::Chunks
  std::uint64_t hash = 0;
};

/// Begins to search for ids, and has the chunks fetched that search() will look at.
void begin_search(const RowIndex& index, std::span<const std::uint64_t> ids, SearchStart* starts);

/// The slots of the first entries that have the ids' tags, or kNoSlot; their rows may be others'.
void search(std::span<const SearchStart> starts, std::uint32_t* slots);

}  // namespace strata::kernels
