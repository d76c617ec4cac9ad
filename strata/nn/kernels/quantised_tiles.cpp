#include "strata/nn/kernels/quantised_tiles.h"

#include <cstring>

#include "strata/base/errors.h"
#include "strata/nn/kernels/kernels.h"

namespace strata::kernels {
namespace {

void put_int8(std::byte* tile, std::int64_t lane, const QuantisedTerms& terms) {
  const float scale = terms.row.scale(0);
  std::memcpy(tile + lane * sizeof(float), &scale, sizeof(float));
  for (std::int64_t i = 0; i < terms.count; ++i)
    tile[int8_place(terms.to + i) + lane] = static_cast<std::byte>(terms.row.q(terms.begin + i));
}

void put_int4(std::byte* tile, std::int64_t lane, const QuantisedTerms& terms) {
  STRATA_CHECK_EQ((terms.begin - terms.to) % kInt4Terms, 0, "kernels.int4");
  for (std::int64_t i = 0; i < terms.count; ++i) {
    const std::int64_t term = terms.begin + i, to = terms.to + i;
    if (i == 0 || to % kInt4Terms == 0) {
      std::byte* header = tile + to / kInt4Terms * kInt4GroupBytes + lane * 2;
      const float scale = terms.row.scale(term / kInt4Terms);
      const float minimum = terms.row.minimum(term / kInt4Terms);
      narrow(Element::kFp16, &scale, header, 1);
      narrow(Element::kFp16, &minimum, header + kTileColumns * 2, 1);
    }
    std::byte& both = tile[int4_place(to) + lane % kInt4Bytes];
    const auto q = static_cast<std::byte>(terms.row.q(term));
    both = lane < kInt4Bytes ? (both & std::byte{0xF0}) | q : (both & std::byte{0x0F}) | q << 4;
  }
}

}  // namespace

void put(std::byte* tiles, std::int64_t in, std::int64_t column, const QuantisedTerms& terms) {
  const QuantisedType type = terms.row.type();
  std::byte* tile = tiles + column / kTileColumns * tile_bytes(type, in);
  const std::int64_t lane = column % kTileColumns;
  type == QuantisedType::kInt8 ? put_int8(tile, lane, terms) : put_int4(tile, lane, terms);
}

}  // namespace strata::kernels
