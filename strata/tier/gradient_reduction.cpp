// Each replica sums one part and reads the other replicas' gradients in place. If several groups
// keep the same shard, they gather its parts afterwards, so each sum is computed once, in rank
// order.
#include "strata/tier/gradient_reduction.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "strata/base/errors.h"

namespace strata {

void add_partial_gradients(Group& tp, const Pin& pin) {
  const LayerLayout& layout = pin.layout();
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    if (!layout.specs[i].partial_gradient) continue;
    at::Tensor gradient = pin.weight_gradient(i);
    all_reduce_sum(tp, gradient);
  }
}

GradientReduction GradientReduction::start(MeshGroups& groups, Pin pin, const LayerCuts& cuts,
                                           bool sequence_parallel, AddedOver over) {
  if (sequence_parallel) add_partial_gradients(groups[Axis::kTensor], pin);
  GradientReduction reduction(groups, std::move(pin), cuts, over);
  const Pin& own = reduction.pin_;
  const at::Tensor bytes =
      own.placement().whole_gradients ? own.flat_gradients() : own.take_gradients();
  const at::Tensor gradients = bytes.narrow(0, 0, own.layout().own_numel);
  Group& group = reduction.in_group() ? groups.shard : groups.weights;
  const Shards& parts = reduction.in_group() ? cuts.shards : cuts.parts;
  if (const auto& code = own.gradient_code()) {
    reduction.sum_ = CodedSum::start(group, gradients, parts, *code);
  } else {
    reduction.sum_ = ReduceScatter::start(group, gradients, parts);
  }
  return reduction;
}

bool GradientReduction::has_arrived() const {
  return std::visit([](const auto& sum) { return sum.has_arrived(); }, sum_);
}

void GradientReduction::sum(Pin pin, bool first, bool last) {
  shard_.emplace(std::move(pin));
  const FlatRange shard = shard_->placement().shard;
  // If the shard lives on the host, the device computes the sum and a copy stream offloads it.
  const bool travels = shard_->shards_travel();
  gradients_ = travels ? at::empty({shard.size()}, groups_->world.device().options(at::kFloat))
                       : shard_->gradient_shard();
  const FlatRange part = in_group() ? shard : cuts_->parts[groups_->weights.rank()];
  summed_ = {part.begin - shard.begin, part.end - shard.begin};
  const at::Tensor own = gradients_.narrow(0, summed_.begin, summed_.size());
  if (travels && !first) shard_->bring_shard(StateKind::kGradientShard, summed_.begin, own);
  std::visit([&](auto& sum) { sum.finish(own, /*accumulate=*/!first); }, sum_);
  if (!last || in_group() || groups_->replica.size() == 1) return;
  if (const auto& code = pin_.gradient_code()) {
    gather_ = CodedGather::start(groups_->replica, gather_tag_, own, parts_of_shard(), *code);
    return;
  }
  Shards parts = parts_of_shard();
  for (FlatRange& each : parts) each = {each.begin - shard.begin, each.end - shard.begin};
  gather_ = AllGather::start(groups_->replica, gather_tag_, own, std::move(parts), gradients_);
}

Pin GradientReduction::finish() {
  STRATA_CHECK(is_summed(), "tier.gradient_reduction");
  Pin pin = std::move(*shard_);
  shard_.reset();
  const FlatRange shard = pin.placement().shard;
  const bool gathers = gather_.index() > 0, travels = pin.shards_travel();
  if (auto* coded = std::get_if<CodedGather>(&gather_)) coded->finish(gradients_, shard.begin);
  if (auto* whole = std::get_if<AllGather>(&gather_)) whole->finish();
  // Replicas read the part in place, and the staging buffer is soon reused for another layer.
  if (gathers && !pin_.gradient_code() && !travels &&
      pin.placement().on_disk(StateKind::kGradientShard))
    groups_->replica.barrier();
  if (travels)
    pin.offload_gradients(
        gathers ? 0 : summed_.begin,
        gathers ? gradients_ : gradients_.narrow(0, summed_.begin, summed_.size()));
  return pin;
}

// Those of the replicas that also keep it.
Shards GradientReduction::parts_of_shard() const {
  Shards parts;
  for (int replica = 0; replica < groups_->replica.size(); ++replica)
    parts.push_back(cuts_->parts[replica * groups_->shard.size() + groups_->shard.rank()]);
  return parts;
}

}  // namespace strata
