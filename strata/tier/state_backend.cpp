#include "strata/tier/state_backend.h"

#include "strata/base/enum_names.h"

namespace strata {

static_assert(kNumStateKinds == count_enumerators<StateKind>());

const char* name_of(StateKind kind) {
  using enum StateKind;
  static constexpr EnumNames<StateKind> kNames{{kWeights, "weights"},
                                               {kWeightShard, "weight shard"},
                                               {kGradients, "gradients"},
                                               {kGradientShard, "gradient shard"},
                                               {kOptimizer, "optimizer states"}};
  return kNames[kind];
}

}  // namespace strata
