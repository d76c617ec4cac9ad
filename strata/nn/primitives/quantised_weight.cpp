#include "strata/nn/primitives/int8_weight.h"

#include "strata/base/errors.h"
#include "strata/nn/kernels/int8_columns.h"

namespace strata {
namespace {

// The bytes of a tile divided by its rows. No other int8 tensor has this stride, which includes a
// scale.
std::int64_t row_bytes(std::int64_t in) {
  return kernels::int8_tile_bytes(in) / kernels::kTileColumns;
}

}  // namespace

std::int64_t int8_words(std::int64_t out, std::int64_t in) {
  return kernels::int8_bytes(out, in) / static_cast<std::int64_t>(sizeof(float));
}

at::Tensor int8_weight(const at::Tensor& words, std::int64_t out, std::int64_t in) {
  STRATA_CHECK(words.is_contiguous() && words.scalar_type() == at::kFloat, "nn.int8_weight");
  STRATA_CHECK_EQ(words.numel(), int8_words(out, in), "nn.int8_weight");
  const at::Tensor bytes = words.detach().view({-1}).view(at::kChar);
  return bytes.as_strided({out, in}, {row_bytes(in), 1});
}

bool is_int8_weight(const at::Tensor& weight) { return weight.scalar_type() == at::kChar; }

const std::byte* int8_tiles(const at::Tensor& weight, std::int64_t column) {
  const std::int64_t in = weight.size(1);
  STRATA_CHECK(is_int8_weight(weight) && weight.stride(0) == row_bytes(in), "nn.int8_weight");
  STRATA_CHECK_EQ(column % kernels::kTileColumns, 0, "nn.int8_weight");
  return static_cast<const std::byte*>(weight.const_data_ptr()) +
         column / kernels::kTileColumns * kernels::int8_tile_bytes(in);
}

}  // namespace strata
