// Steps of replicas that train apart (outer_steps.h). Part of Trainer.
//
// The machine runs one replica as if there were no other. This adds what replicas have in common:
// the targets of the mini-batch, the loss of a pass, and the weights at the end of a round.
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
  if (!outer_ || outer_->replicas().size() == 1) return loss;
  double sum[] = {loss * static_cast<double>(targets_.own)};
  outer_->replicas().all_reduce(sum);
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

// The model of replicas that train apart is the mean of their weights.
void Trainer::use_mean_weights() {
  if (!outer_ || outer_->uses_mean() || !outer_->differ_after(steps_done_)) return;
  outer_->use_mean();
  bring_changed_weights();
}

void Trainer::use_own_weights() {
  if (!outer_ || !outer_->uses_mean()) return;
  outer_->use_own();
  bring_changed_weights();
}

}  // namespace strata
