/// Trains a model on a pipeline, one object a rank: build it in every rank's thread, call the same
/// methods in the same order.
///
///     run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
///       Trainer trainer(model, options, group);
///       trainer.initialise();
///       for (...) trainer.step(loader.at(...), learning_rate);
///     });
///
/// Threads  one rank's thread. Methods other than those that list states are collective.
/// Errors   UserError for a schedule that doesn't fit; what layers, peers and budgets throw, with
/// the
///          action's place in front.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/trace.h"
#include "strata/comm/group.h"
#include "strata/data/batch.h"
#include "strata/model/sequence.h"
#include "strata/optim/options.h"
#include "strata/pipeline/stage_machine.h"
#include "strata/schedule/builders.h"

namespace strata {

struct TrainerOptions {
  std::string schedule = "1f1b";    ///< gpipe | 1f1b | interleaved
  int virtual_stages = 1;           ///< per rank
  Partition partition;              ///< ranks * virtual_stages stages
  std::vector<char> recompute;      ///< per layer; empty: none
  bool keep_intermediates = false;  ///< recompute: none
  std::int64_t micro_batch = 1;     ///< samples
  std::uint64_t seed = 1;
  double clip = 0;  ///< largest gradient norm; 0: off
  OptimizerOptions optimizer;
};

/// A weight or optimizer state under its global name ("block3.mlp.up.weight", "... .exp_avg").
struct NamedState {
  std::string name;
  at::Tensor tensor;  ///< a view of this rank's bytes
};

class Trainer {
 public:
  /// `model` must outlive the trainer.
  Trainer(const Sequence& model, TrainerOptions options, Group& group);

  /// First values, keyed by seed and name: the same on any mesh.
  void initialise();

  /// One update of all ranks.
  const StepOutcome& step(const MiniBatch& batch, double learning_rate);

  /// Forward and backward without an update; gradients stay for gradients().
  const StepOutcome& gradient_step(const MiniBatch& batch);

  /// Mean loss over the valid tokens of the batches, no dropout.
  double evaluate(const std::vector<MiniBatch>& batches);

  /// Outputs of the last layer, [samples, ...], on every rank that holds it; empty elsewhere.
  at::Tensor forward(const MiniBatch& batch);

  std::vector<NamedState> weights();   ///< of this rank's layers, tied ones at their owner
  std::vector<NamedState> replicas();  ///< borrowed weights under the owner's name
  std::vector<NamedState> slots();     ///< optimizer states
  std::vector<NamedState> gradients();

  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  TraceLog& trace() { return trace_; }  ///< of everything performed; clear() it when read
  const Schedule& schedule(int micro_batches, bool training);

 private:
  void run(const MiniBatch& batch, double learning_rate, bool training, bool update);
  std::string global_name(int layer, int weight) const;

  const Sequence& model_;
  TrainerOptions options_;
  Group& group_;
  std::unique_ptr<Optimizer> optimizer_;
  LayerStore store_;
  std::unique_ptr<StageMachine> machine_;
  std::map<std::pair<int, bool>, Schedule> schedules_;
  TraceLog trace_;
  std::int64_t steps_done_ = 0;
};

}  // namespace strata
