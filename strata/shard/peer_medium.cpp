// Only whole weights are made of peers' shards; whatever else is asked for lies below.
#include "strata/shard/peer_medium.h"

#include "strata/base/flat_range.h"
#include "strata/comm/collectives.h"

namespace strata {
namespace {

bool made_of_shards(const LayerState& state, StateKind kind) {
  return kind == StateKind::kWeights && state.placement.gathered_weights;
}

class WeightGather final : public Transfer {
 public:
  WeightGather(LayerState& state, AllGather gather) : state_(state), gather_(std::move(gather)) {}

  // Filled before it is installed: to autograd the weights never changed since the forward.
  Event finish() override {
    state_.weights.install(gather_.finish());
    return {};
  }

 private:
  LayerState& state_;
  AllGather gather_;
};

}  // namespace

// The store sees to it that this rank's shard is here.
std::unique_ptr<Transfer> PeerMedium::fetch(LayerState& state, StateKind kind) {
  if (!made_of_shards(state, kind)) return below_->fetch(state, kind);
  at::Tensor shard = state.weight_shard.bytes();
  const c10::Device device = state.weights.tensor().device();
  if (shard.device() != device) {
    shard = shard.to(device);  // waits: an update on the host may write to it next
  } else if (state.placement.on_disk(StateKind::kWeightShard)) {
    shard = shard.clone();  // what passes the host is overwritten before peers have read it
  }
  return std::make_unique<WeightGather>(
      state, AllGather::start(group_, std::move(shard), cut(state.own(), group_.size())));
}

std::unique_ptr<Transfer> PeerMedium::evict(LayerState& state, StateKind kind) {
  if (!made_of_shards(state, kind)) return below_->evict(state, kind);
  state.weights.remove();
  return nullptr;
}

}  // namespace strata
