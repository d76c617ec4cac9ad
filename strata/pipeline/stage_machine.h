/// Performs a rank's program on real stages: the machine behind training and evaluation.
///
/// Source   GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2021); program from strata/schedule.
/// Threads  one machine belongs to one rank's thread.
/// Errors   what layers, the group and the allocator throw, with the action's place in front.
#pragma once

#include <map>
#include <vector>

#include "strata/comm/group.h"
#include "strata/data/batch.h"
#include "strata/model/sequence.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/gradient_table.h"
#include "strata/pipeline/layer_graph.h"
#include "strata/pipeline/value_table.h"
#include "strata/schedule/execute.h"
#include "strata/tier/store.h"

namespace strata {

/// What every rank must agree on; fixed for the machine's life.
struct MachineOptions {
  Partition partition;
  std::vector<int> rank_of_stage;
  std::vector<char> recompute;      ///< per layer
  bool keep_intermediates = false;  ///< recompute: none
  std::uint64_t seed = 0;
  double clip = 0;  ///< largest gradient norm; 0: no clipping
};

/// One step's inputs.
struct StepInputs {
  std::vector<MicroBatch> micro_batches;
  std::int64_t step = 0;  ///< counts from 0
  std::int64_t valid_tokens = 0;
  double learning_rate = 0;
  bool training = true;  ///< false: forward only
};

/// What a step found; the same on every rank once kReduceNorm ran.
struct StepOutcome {
  double loss = 0;           ///< mean over the valid tokens of the step
  double gradient_norm = 0;  ///< before clipping
};

class StageMachine final : public Machine {
 public:
  /// `optimizer` may be null for forward-only programs.
  StageMachine(const Sequence& model, MachineOptions options, LayerStore& store,
               const Optimizer* optimizer, Group& group);

  /// Sets the inputs of the next run of `program` and clears gradients and loss.
  void begin(const Program& program, StepInputs inputs);
  void perform(const Action& action) override;

  /// Shares the loss; for programs without kReduceNorm. Collective.
  void reduce_loss();
  const StepOutcome& outcome() const { return outcome_; }

  /// The outputs of the last layer, per micro-batch, of a forward-only program (last stage only).
  std::vector<at::Tensor> take_outputs(int num_micro_batches);

 private:
  void forward(const Action& action);
  void forward_layer(int layer, int micro_batch);
  void recompute(const Action& action);
  void backward_layer(int layer, int micro_batch);
  void send_activation(const Action& action);
  void send_gradient(const Action& action);
  void receive(const Action& action);
  void send_tied(const Action& action);
  void receive_tied(const Action& action);
  void sum_ties();
  void reduce_norm();
  void update();
  ForwardContext context(int layer, int micro_batch);
  int local_uses(int value) const;
  bool is_local(int layer) const;

  const Sequence& model_;
  MachineOptions options_;
  LayerStore& store_;
  const Optimizer* optimizer_;
  Group& group_;

  StepInputs inputs_;
  StepOutcome outcome_;
  LossSink loss_;
  std::vector<int> sends_;  // per value: sends a micro-batch, from the program
  ValueTable values_;
  GradientTable gradients_;
  std::map<std::pair<int, int>, LayerGraph> graphs_;         // (layer, micro-batch)
  std::map<std::pair<int, int>, at::Tensor> received_ties_;  // (tie, using layer)
  std::map<int, at::Tensor> outputs_;                        // micro-batch
};

}  // namespace strata
