/// Fetches a layer's weights from the replicas that share them: the medium of ZeRO stage 3.
///
/// Each rank lends its shard and copies the others'. prefetch() starts that, fetch() waits; a
/// release frees all but the shard.
///
/// Threads  collective over the shard group: all its ranks fetch the same layers in the same order.
/// Cost     (n-1)/n of the layer's bytes received; a buffer of the whole layer while it is there.
#pragma once

#include <map>

#include "strata/comm/collectives.h"
#include "strata/comm/group.h"
#include "strata/tier/medium.h"
#include "strata/tier/store.h"

namespace strata {

class PeerMedium final : public Medium {
 public:
  /// `group` must outlive the medium.
  explicit PeerMedium(Group& group) : group_(group) {}
  void prefetch(LayerBuffers& buffers) override;
  void fetch(LayerBuffers& buffers) override;
  void release(LayerBuffers& buffers) override;

 private:
  Group& group_;
  std::map<int, AllGather> under_way_;  // by layer
};

}  // namespace strata
