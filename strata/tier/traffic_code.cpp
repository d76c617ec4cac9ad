#include "strata/tier/traffic_code.h"

namespace strata {

std::optional<BlockCode> traffic_code(const LayerLayout& layout, TrafficFormat format,
                                      std::int64_t block) {
  if (format == TrafficFormat::kFull) return std::nullopt;
  return BlockCode(format, block, matrices_of(layout));
}

}  // namespace strata
