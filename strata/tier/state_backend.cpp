#include "strata/tier/state_backend.h"

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/tier/layer_state.h"

namespace strata {
namespace {

[[noreturn]] void refuse_copy(const LayerState& state) {
  throw InternalError({.operation = "tier.backend",
                       .where = "layer " + std::to_string(state.layer),
                       .what = "a copy of a shard is requested, but the shard is on the device",
                       .expected = "a shard on the host",
                       .got = "",
                       .fix = ""});
}

}  // namespace

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

Completion StateBackend::bring_shard(LayerState& state, StateKind, std::int64_t,
                                     const at::Tensor&) {
  refuse_copy(state);
}

Completion StateBackend::offload_gradients(LayerState& state, std::int64_t, const at::Tensor&) {
  refuse_copy(state);
}

}  // namespace strata
