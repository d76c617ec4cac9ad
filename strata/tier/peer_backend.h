/// Gathers whole weights from the shards that the replicas of a layer keep, as ZeRO stage 3 needs.
///
/// Each rank exports its shard and copies the others'. A fetch runs while the rank computes. If the
/// layer has a code for its weights, ranks gather what the code stands for.
///
/// Source   Rajbhandari et al. 2020 (ZeRO).
/// Threads  collective over the shard group: all its ranks fetch the same layers in the same order.
/// Cost     (n-1)/n of the layer's bytes received; a buffer of the whole layer from fetch to evict.
/// Errors   finish() of a transfer throws Cancelled when another rank failed.
#pragma once

#include <memory>

#include "strata/comm/group.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/state_backend.h"

namespace strata {

class HostBackend;

class PeerBackend final : public StateBackend {
 public:
  /// `host`: copies shards in host memory to a device with a queue; null: there are none. Both
  /// outlive the backend.
  explicit PeerBackend(Group& group, HostBackend* host = nullptr) : group_(group), host_(host) {}
  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;

 private:
  Group& group_;
  HostBackend* host_;
};

}  // namespace strata
