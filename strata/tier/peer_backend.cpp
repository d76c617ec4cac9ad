// Only whole weights are made of peers' shards; whatever else is asked for lies below.
#include "strata/tier/peer_backend.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "strata/base/flat_range.h"
#include "strata/comm/collectives.h"

namespace strata {
namespace {

bool made_of_shards(const LayerState& state, StateKind kind) {
  return kind == StateKind::kWeights && state.placement.gathered_weights;
}

// Memory that a copy writes to: it is given out again in the order of the compute stream, behind the copy.
class Copied {
 public:
  Copied(Stream compute, Completion copied)
      : compute_(std::move(compute)), copied_(std::move(copied)) {}
  Copied(Copied&&) = default;
  Copied& operator=(Copied&&) = delete;
  ~Copied() {
    try {
      compute_.wait(copied_);
    } catch (...) {
      // Whoever waited for the copy knows.
    }
  }

 private:
  Stream compute_;
  Completion copied_;
};

class WeightGather final : public Transfer {
 public:
  WeightGather(LayerState& state, AllGather gather, Copied shard)
      : state_(state), gather_(std::move(gather)), shard_(std::move(shard)) {}

  // Filled before it is installed: to autograd the weights never changed since the forward.
  Completion finish() override {
    state_.weights.install(gather_.finish());
    return {};
  }

 private:
  LayerState& state_;
  AllGather gather_;
  Copied shard_;  // goes before the gather, which has its memory
};

}  // namespace

// The store sees to it that this rank's shard is here, or will be: a copy of it waits for that on its copy stream.
std::unique_ptr<Transfer> PeerBackend::fetch(LayerState& state, StateKind kind) {
  if (!made_of_shards(state, kind)) return below_->fetch(state, kind);
  const Stream& compute = group_.rank_device().stream;
  at::Tensor shard = state.weight_shard.bytes();
  Completion there;
  if (compute.queue() && state.placement.tiers.updates_on_host()) {
    shard = at::empty(shard.sizes(), state.weights.tensor().options());
    there = below_->bring_shard(state, StateKind::kWeightShard, 0, shard);
  } else if (state.placement.on_disk(StateKind::kWeightShard)) {
    shard = shard.clone();  // what passes the host is overwritten before peers have read it
  }
  Copied copied(compute, there);
  AllGather gather = AllGather::start(group_, shard, cut(state.own(), group_.size()), {}, there);
  return std::make_unique<WeightGather>(state, std::move(gather), std::move(copied));
}

std::unique_ptr<Transfer> PeerBackend::evict(LayerState& state, StateKind kind) {
  if (!made_of_shards(state, kind)) return below_->evict(state, kind);
  state.weights.remove();
  return nullptr;
}

}  // namespace strata
