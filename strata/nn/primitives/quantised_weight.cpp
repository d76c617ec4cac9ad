#include "strata/nn/primitives/quantised_weight.h"

#include "strata/base/errors.h"
#include "strata/nn/kernels/quantised_tiles.h"

namespace strata {
namespace {

using kernels::QuantisedType;

// The bytes of a tile divided by its columns. No other tensor of this type has this stride, which
// includes scales.
std::int64_t column_bytes(QuantisedType type, std::int64_t in) {
  return kernels::tile_bytes(type, in) / kernels::kTileColumns;
}

}  // namespace

std::int64_t quantised_words(QuantisedType type, std::int64_t out, std::int64_t in) {
  return kernels::quantised_bytes(type, out, in) / static_cast<std::int64_t>(sizeof(float));
}

at::Tensor quantised_weight(QuantisedType type, const at::Tensor& words, std::int64_t out,
                            std::int64_t in) {
  STRATA_CHECK(words.is_contiguous() && words.scalar_type() == at::kFloat, "nn.quantised_weight");
  STRATA_CHECK_EQ(words.numel(), quantised_words(type, out, in), "nn.quantised_weight");
  const at::Tensor bytes =
      words.detach().view({-1}).view(type == QuantisedType::kInt8 ? at::kChar : at::kByte);
  // Elements of a column overlap if a term has less than a byte.
  return bytes.as_strided({out, in},
                          {column_bytes(type, in), type == QuantisedType::kInt8 ? 1 : 0});
}

bool is_quantised(const at::Tensor& weight) {
  return weight.scalar_type() == at::kChar || weight.scalar_type() == at::kByte;
}

QuantisedType quantised_type(const at::Tensor& weight) {
  STRATA_CHECK(is_quantised(weight), "nn.quantised_weight");
  return weight.scalar_type() == at::kChar ? QuantisedType::kInt8 : QuantisedType::kInt4;
}

const std::byte* quantised_tiles(const at::Tensor& weight, std::int64_t column) {
  const QuantisedType type = quantised_type(weight);
  const std::int64_t in = weight.size(1);
  STRATA_CHECK_EQ(weight.stride(0), column_bytes(type, in), "nn.quantised_weight");
  STRATA_CHECK_EQ(column % kernels::kTileColumns, 0, "nn.quantised_weight");
  return static_cast<const std::byte*>(weight.const_data_ptr()) +
         column / kernels::kTileColumns * kernels::tile_bytes(type, in);
}

}  // namespace strata
