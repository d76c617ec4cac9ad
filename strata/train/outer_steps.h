/// Keeps what the outer steps of replicas that train apart need, and makes the steps.
///
/// Source   optim/outer_step.h.
/// Threads  collective over the replicas, apart from restart() and the states.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

#include "strata/optim/outer_step.h"
#include "strata/pipeline/step_end.h"
#include "strata/train/mean_weights.h"

namespace strata {

/// A step's outcome over replicas that train apart: the mean loss, the root mean square of their
/// gradient norms, and whether any of them skipped its update. `own`: what a replica's loss was
/// divided by; `all`: what all divide theirs by together.
StepOutcome outcome_of_replicas(const StepOutcome& outcome, std::int64_t own, std::int64_t all,
                                Group& replicas);

class OuterSteps {
 public:
  /// Outlived by the others.
  OuterSteps(const OuterOptions& options, LayerStore& store, MeanWeights& weights);

  /// The weights now are the shared ones, as at the beginning of a round.
  void restart();

  /// Moves the shared weights by the mean of the replicas' weights; these become the shared ones.
  void step();

  /// Of a layer's trained weights; undefined if outer steps need none.
  struct States {
    at::Tensor shared, momenta;
  };
  const States& states(int layer) const { return states_.at(layer); }

 private:
  OuterOptions options_;
  LayerStore& store_;
  MeanWeights& weights_;
  std::map<int, States> states_;  // by layer
};

}  // namespace strata
