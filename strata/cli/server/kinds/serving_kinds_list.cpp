#include "strata/cli/server/serving_kind_makers.h"

namespace strata {

std::vector<MakeServingKind> serving_kinds() {
  std::vector<MakeServingKind> kinds = {text_serving(), recommender_serving()};
  std::erase(kinds, nullptr);
  return kinds;
}

}  // namespace strata
