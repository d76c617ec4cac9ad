#include "strata/shard/peer_medium.h"

#include <ATen/ops/empty.h>

#include "strata/shard/partition.h"

namespace strata {

void PeerMedium::prefetch(LayerBuffers& buffers) {
  if (buffers.weights.present() || under_way_.contains(buffers.layer)) return;
  under_way_.emplace(buffers.layer, AllGather::start(group_, buffers.weight_shard,
                                                     cut(buffers.own(), group_.size())));
}

void PeerMedium::fetch(LayerBuffers& buffers) {
  if (buffers.weights.present()) return;
  prefetch(buffers);
  // Filled before it is installed: to autograd the weights never changed since the forward.
  at::Tensor bytes = at::empty({buffers.layout->own_numel}, buffers.weight_shard.options());
  under_way_.at(buffers.layer).finish(bytes);
  buffers.weights.install(std::move(bytes));
  under_way_.erase(buffers.layer);
}

void PeerMedium::release(LayerBuffers& buffers) {
  if (buffers.residence.whole_weights) return;
  if (under_way_.contains(buffers.layer)) fetch(buffers);  // peers have lent: take what is ours
  if (buffers.weights.present()) buffers.weights.remove();
}

}  // namespace strata
