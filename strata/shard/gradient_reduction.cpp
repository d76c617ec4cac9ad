// Each replica sums one part, reading the others' gradients where they are; parts of a shard that other
// groups hold too are then gathered, so a sum is made once and its order is that of the ranks.
#include "strata/shard/gradient_reduction.h"

#include <ATen/ops/empty.h>

namespace strata {
namespace {

void add_partial_gradients(Group& tp, const Lease& lease) {
  const LayerLayout& layout = lease.layout();
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    if (!layout.specs[i].partial_gradient) continue;
    at::Tensor gradient = lease.weight_gradient(i);
    all_reduce_sum(tp, gradient);
  }
}

}  // namespace

GradientReduction GradientReduction::start(MeshGroups& groups, Lease lease, const LayerCuts& cuts,
                                           bool sequence_parallel) {
  if (sequence_parallel) add_partial_gradients(groups.tp, lease);
  GradientReduction reduction(groups, std::move(lease), cuts);
  const Lease& own = reduction.lease_;
  const at::Tensor bytes =
      own.placement().whole_gradients ? own.flat_gradients() : own.take_gradients();
  reduction.device_ = bytes.device();
  reduction.sum_ =
      ReduceScatter::start(groups.dp, bytes.narrow(0, 0, own.layout().own_numel), cuts.parts);
  return reduction;
}

void GradientReduction::finish(bool first, bool last) {
  const FlatRange shard = lease_.placement().shard;
  const at::Tensor gradients = lease_.gradient_shard();
  const FlatRange part = cuts_->parts[groups_->dp.rank()];
  const at::Tensor own = gradients.narrow(0, part.begin - shard.begin, part.size());
  if (own.device() == device_) {
    sum_.finish(own, /*accumulate=*/!first);
  } else {  // the sum is the device's work, its place is on the host: waits for the copies
    const at::Tensor sum =
        first ? at::empty(own.sizes(), own.options().device(device_)) : own.to(device_);
    sum_.finish(sum, /*accumulate=*/!first);
    own.copy_(sum);
  }
  if (!last || groups_->replica.size() == 1) return;
  Shards parts;
  for (int replica = 0; replica < groups_->replica.size(); ++replica) {
    const FlatRange other = cuts_->parts[replica * groups_->shard.size() + groups_->shard.rank()];
    parts.push_back({other.begin - shard.begin, other.end - shard.begin});
  }
  AllGather::start(groups_->replica, own, parts, gradients).finish();
}

}  // namespace strata
