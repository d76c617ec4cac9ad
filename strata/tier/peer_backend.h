/// Makes whole weights of the shards that the replicas of a layer keep: the backend of ZeRO stage 3.
///
/// Each rank exports its shard and copies the others'; a started fetch goes on while the rank
/// computes. Everything but whole weights is the business of the backend below.
///
/// Threads  collective over the shard group: all its ranks fetch the same layers in the same order.
/// Cost     (n-1)/n of the layer's bytes received; a buffer of the whole layer while it is there.
#pragma once

#include <memory>

#include "strata/comm/group.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/state_backend.h"

namespace strata {

class PeerBackend final : public StateBackend {
 public:
  /// `group` must outlive the backend. `below`: where this rank's own bytes are.
  explicit PeerBackend(Group& group, std::unique_ptr<StateBackend> below = resident_backend())
      : group_(group), below_(std::move(below)) {}
  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;
  Completion bring_shard(LayerState& state, StateKind kind, std::int64_t begin,
                         const at::Tensor& to) override {
    return below_->bring_shard(state, kind, begin, to);
  }
  Completion offload_gradients(LayerState& state, std::int64_t begin,
                               const at::Tensor& from) override {
    return below_->offload_gradients(state, begin, from);
  }
  void begin_gradients(LayerState& state) override { below_->begin_gradients(state); }
  Completion read_until(LayerState& state, StateKind kind, const Completion& event) override {
    return below_->read_until(state, kind, event);
  }
  void end_offload() override { below_->end_offload(); }
  Completion written(LayerState& state, StateKind kind, const Completion& event) override {
    return below_->written(state, kind, event);
  }

 private:
  Group& group_;
  std::unique_ptr<StateBackend> below_;
};

}  // namespace strata
