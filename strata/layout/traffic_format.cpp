#include "strata/layout/traffic_format.h"

#include "strata/base/enum_names.h"

namespace strata {

const char* name_of(TrafficFormat format) {
  using enum TrafficFormat;
  static constexpr EnumNames<TrafficFormat> kNames{
      {kFull, "full"}, {kInt8, "int8"}, {kInt4, "int4"}};
  return kNames[format];
}

int bits_of(TrafficFormat format) {
  return format == TrafficFormat::kFull ? 0 : format == TrafficFormat::kInt8 ? 8 : 4;
}

double traffic_bytes(TrafficFormat format, std::int64_t block, double elements, double full_bytes) {
  if (format == TrafficFormat::kFull) return full_bytes;
  constexpr double kScaleBytes = 4;
  return elements * (bits_of(format) / 8.0 + kScaleBytes / static_cast<double>(block));
}

}  // namespace strata
