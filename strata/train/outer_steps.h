/// Averages the weights of replicas that train apart, and keeps what their outer steps need.
///
/// Between outer steps the mean of the replicas' weights may take the place of a replica's own
/// weights, which then lie in its gradient buffers: for an evaluation or a checkpoint.
///
/// Source   optim/outer_step.h.
/// Threads  collective over `replicas`, apart from restart(), use_own() and the states.
/// Cost     a sum of fp32 gradients over the replicas; no memory but the states' and messages.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "strata/comm/group.h"
#include "strata/optim/master_weights.h"
#include "strata/optim/outer_step.h"
#include "strata/pipeline/step_end.h"
#include "strata/tier/store.h"

namespace strata {

/// A step's outcome over replicas that train apart: the mean loss, the root mean square of their
/// gradient norms, and whether any of them skipped its update. `own`: what a replica's loss was
/// divided by; `all`: what all divide theirs by together.
StepOutcome outcome_of_replicas(const StepOutcome& outcome, std::int64_t own, std::int64_t all,
                                Group& replicas);

class OuterSteps {
 public:
  /// `replicas`: the ranks that hold the same layers, one of each replica. Outlived by both.
  OuterSteps(const OuterOptions& options, LayerStore& store, Group& replicas);

  const OuterOptions& options() const { return options_; }
  Group& replicas() { return replicas_; }
  /// Whether replicas may have different weights after so many steps.
  bool differ_after(std::int64_t steps_done) const {
    return replicas_.size() > 1 && !options_.ends_round(steps_done);
  }

  /// The weights now are the shared ones, as at the beginning of a round.
  void restart();

  /// Moves the shared weights by the mean of the replicas' weights; these become the shared ones.
  void step();

  void use_mean();
  void use_own();
  bool uses_mean() const { return uses_mean_; }

  /// Of a layer's trained weights; undefined if outer steps need none.
  struct States {
    at::Tensor shared, momenta;
  };
  const States& states(int layer) const { return states_.at(layer); }

  /// This replica's own weights, wherever they are. `pin`: kPinned.
  MasterWeights own_weights(const Pin& pin) const;
  static constexpr StateKinds kPinned =
      StateKind::kWeightShard | StateKind::kOptimizer | StateKind::kGradients;

 private:
  void average(const Pin& pin);
  void exchange_weights();

  OuterOptions options_;
  LayerStore& store_;
  Group& replicas_;
  std::map<int, States> states_;  // by layer
  bool uses_mean_ = false;
};

}  // namespace strata
