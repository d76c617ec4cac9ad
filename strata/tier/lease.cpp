#include "strata/tier/lease.h"

#include <ATen/ops/zeros.h>

#include "strata/base/errors.h"
#include "strata/tier/store.h"

namespace strata {

Lease::Lease(Lease&& other) noexcept
    : store_(std::exchange(other.store_, nullptr)),
      state_(other.state_),
      kinds_(other.kinds_),
      owners_(std::move(other.owners_)) {}

Lease::~Lease() {
  if (store_) store_->end_lease(state_->layer, kinds_);
}

void Lease::require(StateKind kind) const {
  if (kinds_.contains(kind)) return;
  throw InternalError({.operation = "tier.lease",
                       .where = "layer " + std::to_string(state_->layer),
                       .what = "the lease is not for this kind of state",
                       .expected = std::string("a lease for ") + name_of(kind),
                       .got = "",
                       .fix = ""});
}

std::span<const at::Tensor> Lease::weights() const {
  require(StateKind::kWeights);
  return state_->leaves;
}

at::Tensor Lease::flat_weights() const {
  require(StateKind::kWeights);
  return state_->weights.tensor();
}

at::Tensor Lease::weight_shard() const {
  const FlatRange shard = state_->placement.shard;
  const bool whole = state_->placement.updates_in_weights();
  require(whole ? StateKind::kWeights : StateKind::kWeightShard);
  // Of the bytes themselves, not of the buffer: peers may read them after they have left it.
  return whole ? state_->weights.bytes().narrow(0, shard.begin, shard.size())
               : state_->weight_shard.bytes();
}

void Lease::open_gradients() const {
  require(StateKind::kGradients);
  FlatBuffer& gradients = state_->gradients;
  if (!gradients.present())
    gradients.install(at::zeros(gradients.tensor().sizes(), gradients.tensor().options()));
}

at::Tensor Lease::take_gradients() const {
  require(StateKind::kGradients);
  return state_->gradients.remove();
}

at::Tensor Lease::flat_gradients() const {
  require(StateKind::kGradients);
  return state_->gradients.bytes();
}

at::Tensor Lease::weight_gradient(std::size_t weight) const {
  require(StateKind::kGradients);
  STRATA_CHECK(state_->gradients.present(), "tier.weight_gradient");
  return state_->view_of(state_->gradients, weight);
}

at::Tensor Lease::gradient_shard() const {
  require(state_->placement.tiers.updates_on_host() ? StateKind::kGradientShard
                                                    : StateKind::kGradients);
  const FlatRange shard = state_->placement.shard;
  return state_->placement.updates_from_gradients()
             ? state_->gradients.bytes().narrow(0, shard.begin, shard.size())
             : state_->gradient_shard.bytes();
}

bool Lease::shards_travel() const { return store_->shards_travel(*state_); }

void Lease::bring_shard(StateKind kind, std::int64_t begin, const at::Tensor& to) const {
  require(kind);
  store_->bring_shard(*state_, kind, begin, to);
}

void Lease::offload_gradients(std::int64_t begin, const at::Tensor& from) const {
  require(StateKind::kGradientShard);
  store_->offload_gradients(*state_, begin, from);
}

void Lease::zero_gradients() const {
  require(StateKind::kGradients);
  store_->begin_gradients(*state_);
  if (state_->gradients.present()) state_->gradients.bytes().zero_();
  for (std::size_t i = 0; i < state_->leaves.size(); ++i)
    if (layout().specs[i].statistic == Statistic::kMean) moments(i).zero_();
}

at::Tensor Lease::moments(std::size_t weight) const {
  STRATA_CHECK(layout().specs[weight].statistic == Statistic::kMean, "tier.moments");
  return state_->leaves[weight].grad();
}

MasterWeights Lease::master() const {
  const ShardPlacement& placement = state_->placement;
  if (placement.dtype == at::kFloat || !placement.trains) return {weight_shard()};
  require(StateKind::kOptimizer);
  if (placement.splits_weights()) return {weight_shard(), state_->master.bytes()};
  return {state_->master.bytes()};
}

at::Tensor Lease::rounded() const {
  return state_->placement.rounds_weights() ? weight_shard() : at::Tensor();
}

std::vector<at::Tensor> Lease::slots() const {
  require(StateKind::kOptimizer);
  std::vector<at::Tensor> slots;
  for (const FlatBuffer& slot : state_->slots) slots.push_back(slot.bytes());
  return slots;
}

}  // namespace strata
