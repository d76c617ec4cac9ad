#include "strata/schedule/tiers.h"

namespace strata {

const char* name_of(Tier tier) {
  constexpr const char* kNames[] = {"device", "host", "disk"};
  return kNames[static_cast<int>(tier)];
}

}  // namespace strata
