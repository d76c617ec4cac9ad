/// Multiplies few rows, and attends from few queries, in the order of sums of the libraries that do
/// this for many: MKL's products and ATen's fused attention on processors with AVX2. Products by
/// oneDNN are cut so that they have this order, too (nn/host/sgemm.h).
///
/// A sum of products is cut into pieces (sum_piece()); each is a chain of fused multiply-adds in
/// ascending order, and the pieces are added in ascending order. The libraries do not promise this:
/// strata/nn/host/few_rows.h compares before it uses these functions. No torch is included here.
///
/// Shapes   row-major; strides in elements. Weights, keys and values of any element type, widened
///          to fp32; the rest fp32.
/// Threads  any.
#pragma once

#include <cstdint>
#include <span>

#include "strata/base/element.h"

namespace strata::kernels {

/// ATen's attention adds up the products and exponentials of so many keys before the next ones'.
inline constexpr std::int64_t kKeyBlock = 512;
inline constexpr std::int64_t kMostFewRows = 64;      ///< of multiply_few()
inline constexpr std::int64_t kRegisterRows = 4;      ///< read a weight together from memory
inline constexpr std::int64_t kLeastFewColumns = 16;  ///< MKL adds up fewer columns in other orders

inline constexpr std::int64_t kLongestPiece = 192;

/// The length of the pieces of a sum of so many products.
constexpr std::int64_t sum_piece(std::int64_t terms) {
  if (terms <= kLongestPiece) return terms;
  return terms < 2 * kLongestPiece ? terms / 2 : kLongestPiece;
}

struct FewRows {
  const float* x;  ///< [rows, in]
  std::int64_t rows, in;
  std::int64_t x_stride;
};

struct Columns {
  Element element;
  const void* weight;  ///< [out, in]
  std::int64_t out;
  const float* bias;  ///< [out]; null: none
};

/// y[r][o] = bias[o] + x[r] . weight[o], for at most kMostFewRows rows.
void multiply_few(const FewRows& x, const Columns& columns, float* y, std::int64_t y_stride);

/// Keys and values of a text, in pages.
struct PagesOfHead {
  Element element;
  const void* keys;  ///< of the head in page 0, [page_tokens, width]; so for values
  const void* values;
  std::int64_t page_stride;  ///< from a page to the next one, in elements
  std::span<const std::int32_t> pages;
  std::int64_t page_tokens, width;
};

/// The lanes of ATen's vectors, which add up exponentials.
enum class ExponentLanes : std::uint8_t { k8 = 8, k16 = 16 };

/// The queries of one token whose heads share a head of keys.
struct Queries {
  const float* q;  ///< [heads, width]
  std::int64_t heads;
  float scale;
  ExponentLanes lanes;
};

inline constexpr std::int64_t kWidthUnit = 8;  ///< heads' widths are multiples of it

/// y [heads, width] = softmax(scale q . keys) values over the first `seen` keys, as in a sample of
/// `sample` tokens. The width is a multiple of kWidthUnit.
void attend_few(const Queries& queries, const PagesOfHead& text, std::int64_t seen,
                std::int64_t sample, float* y);

}  // namespace strata::kernels
