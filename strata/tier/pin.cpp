#include "strata/tier/pin.h"

#include <ATen/ops/zeros.h>

#include "strata/base/errors.h"
#include "strata/tier/store.h"

namespace strata {

Pin::Pin(Pin&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      state_(other.state_),
      kinds_(other.kinds_),
      owners_(std::move(other.owners_)) {}

Pin::~Pin() {
  if (store_) store_->unpin(state_->layer, kinds_);
}

void Pin::require(StateKind kind) const {
  if (kinds_.contains(kind)) return;
  throw InternalError({.operation = "tier.pin",
                       .where = "layer " + std::to_string(state_->layer),
                       .what = "the pin is not for this kind of state",
                       .expected = std::string("a pin for ") + name_of(kind),
                       .got = "",
                       .fix = ""});
}

std::span<const at::Tensor> Pin::weights() const {
  require(StateKind::kWeights);
  return state_->leaves;
}

at::Tensor Pin::flat_weights() const {
  require(StateKind::kWeights);
  return state_->weights.tensor();
}

at::Tensor Pin::weight_shard() const {
  const FlatRange shard = state_->placement.shard;
  const bool whole = state_->placement.updates_in_weights();
  require(whole ? StateKind::kWeights : StateKind::kWeightShard);
  // Views of the bytes, not of the buffer: peers may read them after they have left the buffer.
  return whole ? state_->weights.bytes().narrow(0, shard.begin, shard.size())
               : state_->weight_shard.bytes();
}

void Pin::open_gradients() const {
  require(StateKind::kGradients);
  FlatBuffer& gradients = state_->gradients;
  if (!gradients.present())
    gradients.install(at::zeros(gradients.tensor().sizes(), gradients.tensor().options()));
}

at::Tensor Pin::take_gradients() const {
  require(StateKind::kGradients);
  return state_->gradients.remove();
}

at::Tensor Pin::flat_gradients() const {
  require(StateKind::kGradients);
  return state_->gradients.bytes();
}

at::Tensor Pin::weight_gradient(std::size_t weight) const {
  require(StateKind::kGradients);
  STRATA_CHECK(state_->gradients.present(), "tier.weight_gradient");
  return state_->view_of(state_->gradients, weight);
}

at::Tensor Pin::gradient_shard() const {
  require(state_->placement.tiers.updates_on_host() ? StateKind::kGradientShard
                                                    : StateKind::kGradients);
  const FlatRange shard = state_->placement.shard;
  return state_->placement.updates_from_gradients()
             ? state_->gradients.bytes().narrow(0, shard.begin, shard.size())
             : state_->gradient_shard.bytes();
}

bool Pin::shards_travel() const { return store_->shards_travel(*state_); }

void Pin::bring_shard(StateKind kind, std::int64_t begin, const at::Tensor& to) const {
  require(kind);
  store_->bring_shard(*state_, kind, begin, to);
}

void Pin::offload_gradients(std::int64_t begin, const at::Tensor& from) const {
  require(StateKind::kGradientShard);
  store_->offload_gradients(*state_, begin, from);
}

void Pin::zero_gradients() const {
  require(StateKind::kGradients);
  store_->begin_gradients(*state_);
  if (state_->gradients.present()) state_->gradients.bytes().zero_();
  for (std::size_t i = 0; i < state_->leaves.size(); ++i)
    if (layout().specs[i].statistic == Statistic::kMean) moments(i).zero_();
}

at::Tensor Pin::moments(std::size_t weight) const {
  STRATA_CHECK(layout().specs[weight].statistic == Statistic::kMean, "tier.moments");
  return state_->leaves[weight].grad();
}

MasterWeights Pin::master() const {
  const ShardPlacement& placement = state_->placement;
  if (placement.dtype == at::kFloat || !placement.trains) return {weight_shard()};
  require(StateKind::kOptimizer);
  if (placement.splits_weights()) return {weight_shard(), state_->master.bytes()};
  return {state_->master.bytes()};
}

at::Tensor Pin::rounded() const {
  return state_->placement.rounds_weights() ? weight_shard() : at::Tensor();
}

std::vector<at::Tensor> Pin::slots() const {
  require(StateKind::kOptimizer);
  std::vector<at::Tensor> slots;
  for (const FlatBuffer& slot : state_->slots) slots.push_back(slot.bytes());
  return slots;
}

}  // namespace strata
