#include "strata/shard/gradient_reduction.h"

namespace strata {
namespace {

void add_partial_gradients(Group& tp, LayerBuffers& buffers) {
  const LayerLayout& layout = *buffers.layout;
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    if (!layout.specs[i].partial_gradient) continue;
    at::Tensor gradient = buffers.leaves[i].grad();
    all_reduce_sum(tp, gradient);
  }
}

}  // namespace

GradientReduction GradientReduction::start(MeshGroups& groups, LayerBuffers& buffers,
                                           const LayerCuts& cuts, bool sequence_parallel) {
  if (sequence_parallel) add_partial_gradients(groups.tp, buffers);
  GradientReduction reduction;
  reduction.groups_ = &groups;
  reduction.buffers_ = &buffers;
  reduction.cuts_ = &cuts;
  const at::Tensor bytes =
      buffers.residence.whole_gradients ? buffers.gradients.tensor() : buffers.gradients.remove();
  reduction.sum_ =
      ReduceScatter::start(groups.dp, bytes.narrow(0, 0, buffers.layout->own_numel), cuts.pieces);
  return reduction;
}

void GradientReduction::finish(bool last) {
  const FlatRange shard = buffers_->residence.shard;
  const auto part = [&](FlatRange range) {
    return buffers_->gradient_shard.narrow(0, range.begin - shard.begin, range.size());
  };
  const at::Tensor own = part(cuts_->pieces[groups_->dp.rank()]);
  sum_.finish(own, /*accumulate=*/!buffers_->residence.whole_gradients);
  if (!last || groups_->replica.size() == 1) return;
  Shards pieces;
  for (int replica = 0; replica < groups_->replica.size(); ++replica) {
    const FlatRange piece = cuts_->pieces[replica * groups_->shard.size() + groups_->shard.rank()];
    pieces.push_back({piece.begin - shard.begin, piece.end - shard.begin});
  }
  AllGather::start(groups_->replica, own, pieces).finish(buffers_->gradient_shard);
}

}  // namespace strata
