#include "strata/layout/context_split.h"

#include <numeric>

#include "strata/base/enum_names.h"

namespace strata {

const char* name_of(ContextExchange exchange) {
  using enum ContextExchange;
  static constexpr EnumNames<ContextExchange> kNames{{kRing, "ring"}, {kUlysses, "ulysses"}};
  return kNames[exchange];
}

std::int64_t ContextSplit::unit(std::int64_t parts) const {
  if (!divides()) return parts;
  return chunks() * std::lcm(in_blocks() && block > 0 ? block : 1, parts);
}

std::array<TokenRange, 2> own_tokens(const ContextSplit& split, int rank, std::int64_t length,
                                     int part, int parts) {
  const std::int64_t mine = length / split.ranks / parts, before = part * mine;
  if (split.ranks == 1) return {{{before, mine}, {before + mine, 0}}};
  // The share may lie in one chunk or on both sides of the border: its halves never do.
  const std::int64_t chunk = length / split.chunks(), half = mine / 2;
  const auto range = [&](std::int64_t local) {
    const bool early = local < chunk;
    const int index = early ? split.early_chunk(rank) : split.late_chunk(rank);
    return TokenRange{index * chunk + (early ? local : local - chunk), half};
  };
  return {range(before), range(before + half)};
}

}  // namespace strata
