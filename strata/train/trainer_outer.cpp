// Replicas with weights of their own, between outer steps (outer_steps.h) or in a round of 0/1
// Adam. Part of Trainer.
//
// If replicas train apart, the machine runs one replica as if there were no other. This adds what
// replicas have in common: the targets of the mini-batch, the loss of a pass, and the weights.
#include <algorithm>
#include <cmath>

#include "strata/device/account.h"
#include "strata/train/outer_steps.h"
#include "strata/train/trainer.h"

namespace strata {

// The replica's share of the targets that count. If it has none, its gradients are zero.
std::int64_t Trainer::own_targets(const MiniBatch& all, const MiniBatch& part) const {
  const auto counted = [&](const MiniBatch& batch) {
    const at::Tensor& targets = batch.inputs.back();
    const at::Tensor ignored =
        std::isnan(all.ignored_target) ? targets.isnan() : targets.eq(all.ignored_target);
    return targets.numel() - ignored.sum().item<std::int64_t>();
  };
  const UnchargedScope uncharged;  // numbers of the step
  const std::int64_t every = counted(all);
  return std::max<std::int64_t>(1, every == 0 ? 1 : all.valid_tokens * counted(part) / every);
}

// The mean loss of a pass forward over all replicas.
double Trainer::loss_of(const MiniBatch& batch) {
  const double loss = machine_->reduce_loss();
  Group& replicas = groups_[Axis::kData];
  if (!outer_ || replicas.size() == 1) return loss;
  double sum[] = {loss * static_cast<double>(targets_.own)};
  replicas.all_reduce(sum);
  return sum[0] / static_cast<double>(batch.valid_tokens);
}

// Brings weights that were replaced to where layers read them. Tied weights that the last step has
// sent must have been received before they are sent again.
void Trainer::bring_changed_weights() {
  groups_.world.barrier();
  bring_weights(/*round=*/true);
}

void Trainer::end_round() {
  outer_->step();
  bring_changed_weights();
}

// Whether replicas have weights of their own now.
bool Trainer::replicas_differ() const {
  if (!mean_ || mean_->replicas().size() == 1) return false;
  return outer_ ? !options_.outer.ends_round(steps_done_) : machine_->sign_round().updates > 0;
}

// The model is the mean of the replicas' weights.
void Trainer::use_mean_weights() {
  if (!replicas_differ() || mean_->uses_mean()) return;
  groups_.world.barrier();  // ranks that share shards may still read the weights in place
  mean_->use_mean();
  bring_changed_weights();
}

void Trainer::use_own_weights() {
  if (!mean_ || !mean_->uses_mean()) return;
  groups_.world.barrier();
  mean_->use_own();
  bring_changed_weights();
}

}  // namespace strata
