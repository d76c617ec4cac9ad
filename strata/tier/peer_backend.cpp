#include "strata/tier/peer_backend.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "strata/base/errors.h"
#include "strata/base/flat_range.h"
#include "strata/comm/coded_collectives.h"
#include "strata/comm/collectives.h"
#include "strata/tier/host_backend.h"

namespace strata {
namespace {

// Memory that a copy writes to. The allocator reuses it in the order of the compute stream, so the
// stream waits for the copy before the memory is freed.
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
      // The caller that waited for the copy has got the error.
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

  // The weights are installed after the gather: autograd sees no write since the forward.
  Completion finish() override {
    state_.weights.install(gather_.finish());
    return {};
  }

 private:
  LayerState& state_;
  AllGather gather_;
  Copied shard_;  // destroyed before the gather, which holds the memory
};

class CodedWeightGather final : public Transfer {
 public:
  CodedWeightGather(LayerState& state, CodedGather gather)
      : state_(state), gather_(std::move(gather)) {}

  Completion finish() override {
    const at::Tensor weights = at::empty({state_.own().size()}, state_.weights.tensor().options());
    gather_.finish(weights);
    state_.weights.install(weights);
    return {};
  }

 private:
  LayerState& state_;
  CodedGather gather_;
};

}  // namespace

// The store has fetched this rank's shard, or has started to: a copy of it waits for that.
std::unique_ptr<Transfer> PeerBackend::fetch(LayerState& state, StateKind kind) {
  STRATA_CHECK(state.home(kind) == Home::kPeers, "tier.peer_backend");
  const Stream& compute = group_.rank_device().stream;
  at::Tensor shard = state.weight_shard.bytes();
  if (state.weight_code)
    return std::make_unique<CodedWeightGather>(
        state,
        CodedGather::start(group_, shard, cut(state.own(), group_.size()), *state.weight_code));
  Completion there;
  if (compute.queue() && state.placement.tiers.updates_on_host()) {
    STRATA_CHECK(host_ != nullptr, "tier.peer_backend");
    shard = at::empty(shard.sizes(), state.weights.tensor().options());
    there = host_->bring_shard(state, StateKind::kWeightShard, 0, shard);
  } else if (state.home(StateKind::kWeightShard) == Home::kDisk) {
    shard = shard.clone();  // the staging buffer is overwritten before all peers have read it
  }
  Copied copied(compute, there);
  AllGather gather = AllGather::start(group_, shard, cut(state.own(), group_.size()), {}, there);
  return std::make_unique<WeightGather>(state, std::move(gather), std::move(copied));
}

std::unique_ptr<Transfer> PeerBackend::evict(LayerState& state, StateKind kind) {
  STRATA_CHECK(state.home(kind) == Home::kPeers, "tier.peer_backend");
  state.weights.remove();
  return nullptr;
}

}  // namespace strata
