/// Performs a rank's program on real stages: the machine behind training and evaluation.
///
/// Source   GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2021); program from strata/schedule.
/// Threads  one machine belongs to one rank's thread.
/// Errors   what layers, the group and the allocator throw, with the action's place in front.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/lane_trace.h"
#include "strata/comm/group.h"
#include "strata/data/batch.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/sequential.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/batch_rows.h"
#include "strata/pipeline/device_lanes.h"
#include "strata/pipeline/layer_graph.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/pipeline/offloaded_activations.h"
#include "strata/pipeline/step_end.h"
#include "strata/pipeline/value_table.h"
#include "strata/schedule/execute.h"
#include "strata/schedule/step_plan.h"
#include "strata/shard/gradient_reduction.h"
#include "strata/shard/tensor_group.h"
#include "strata/tier/store.h"

namespace strata {

/// What every rank must agree on beside the plan; fixed for the machine's life.
struct MachineOptions {
  std::uint64_t seed = 1;      ///< of first values and dropout
  double clip = 0;             ///< largest gradient norm; 0: no clipping
  double label_smoothing = 0;  ///< in training
  /// Asynchronous training: weights are updated with the gradients of so many steps before. The first
  /// steps have none and update nothing.
  int gradient_delay = 0;
};

/// One step's inputs.
struct StepInputs {
  std::vector<MicroBatch> micro_batches;  ///< on the rank's device
  std::int64_t step = 0;                  ///< counts from 0
  std::int64_t valid_tokens = 0;
  double learning_rate = 0;
  bool updates = true;                        ///< false: gradients alone are wanted
  bool training = true;                       ///< false: forward only
  std::vector<at::Tensor>* scores = nullptr;  ///< as LossSink::scores
};

class StageMachine final : public Machine {
 public:
  /// `plan`: whose programs it will run. `optimizer` may be null for forward-only programs, `offloaded`
  /// where no activation leaves the device. `lane_trace`: of updates on the host; null: nobody draws them.
  /// `rows`: of a model that reads rows of embeddings; null: they come with the mini-batch.
  StageMachine(const Sequential& model, StepPlan plan, const MachineOptions& options,
               LayerStore& store, const Optimizer* optimizer, MeshGroups& groups,
               OffloadedActivations* offloaded = nullptr, LaneTrace* lane_trace = nullptr,
               BatchRows* rows = nullptr);

  /// Sets the inputs of the next run of `program` and clears gradients and loss.
  void begin(const Program& program, StepInputs inputs);
  void perform(const Action& action) override;

  /// Behind the last action of a step: its outcome can be taken from now on, at any time.
  void end() { step_end_.post(inputs_.valid_tokens); }
  /// Of the oldest step that ended and was not asked for; waits for the device.
  StepOutcome take_outcome() { return step_end_.take(); }

  /// The mean loss over the ranks; for programs without kReduceNormAndLoss. Collective.
  double reduce_loss();

  /// What the last step left the next one; waits for the device.
  LossScale loss_scale() const { return step_end_.carried(); }
  void set_loss_scale(const LossScale& scale) { step_end_.carry(scale); }

  /// After a step's last backward of its reader: the gradient of an input of the mini-batch, of all
  /// samples that begin() got, without the loss scale. Undefined where no layer of the rank reads it.
  const at::Tensor& input_gradient(int batch_input) const { return input_gradients_[batch_input]; }

  /// From now on it is written down what the device does for each layer, message and end of a step. Null: no
  /// longer. `lanes` outlives the machine, or what comes next here.
  void trace_device(DeviceLanes* lanes) { device_lanes_ = lanes; }
  /// What is given to the device while it lives is of this lane.
  DeviceLanes::Span device_span(LaneKind lane, int layer) {
    return device_lanes_ ? device_lanes_->span(lane, layer) : DeviceLanes::Span();
  }

  /// What waits between two actions for a later one. A copy has the same tensors.
  struct Tables {
    ValueTable values;
    GradientTable gradients;
    std::map<std::pair<int, int>, at::Tensor> received_ties;  ///< (tie, using layer)

    /// Writes the tensors to where `to`, of the same entries, has them.
    void copy_to(Tables& to) const;
    /// Itself, with tensors that cannot be written to copied.
    Tables dense() const;
  };
  const Tables& tables() const { return tables_; }
  void set_tables(Tables tables) { tables_ = std::move(tables); }

  /// Makes the compute stream wait for whoever has read what this rank lent: a recording writes to it without
  /// asking again.
  void reclaim_loans() {
    RankDevice& device = groups_.world.rank_device();
    device.loans.reclaim(device.stream);
  }

  /// Behind a program: the next mini-batch may come before the next program begins.
  void let_inputs_go() { inputs_.micro_batches.clear(); }

  /// For a step that is repeated: begin() stays what it was, but the inputs are others. Returns the old ones.
  StepInputs exchange_inputs(StepInputs inputs) {
    return std::exchange(inputs_, std::move(inputs));
  }

  /// Layers that give a gradient of the mini-batch, whose place changes from step to step.
  LayerSet layers_with_host_inputs() const;
  /// Whether an action keeps something in this machine from step to step.
  bool needs_host(const Action& action) const {
    return action.op == Op::kReduceNormAndLoss && options_.gradient_delay > 0;
  }

  /// The seconds of this rank's layers in the last training steps.
  const LayerTimes& layer_times() const { return layer_times_; }

  /// Brings every replica's part of a layer that the host has updated to all of them. Collective.
  void gather_from_host(int layer);

  /// The elements of a layer that this replica answers for.
  FlatRange part_of(int layer) { return cuts_of(layer).parts[groups_.dp.rank()]; }

 private:
  void forward(const Action& action);
  void forward_layer(int layer, int micro_batch);
  void fetch_rows();
  void offload_activations(const Action& action);
  void recompute(const Action& action);
  void backward_layer(int layer, int micro_batch);
  void make_input_gradients();
  void keep_input_gradient(int batch_input, int micro_batch, const at::Tensor& gradient);
  void send_activation(const Action& action);
  void send_gradient(const Action& action);
  void receive(const Action& action);
  void send_tied(const Action& action);
  void receive_tied(const Action& action);
  void add_ties(const Action& action);
  void reduce_gradients(const Action& action);
  void await_gradients(const Action& action);
  void delay_gradients();
  void reduce_norm_and_loss();
  void sum_squares_of(int layer, const at::Tensor& blocks);
  void add_squares_on_host(int layer);
  void update(const Action& action);
  bool updates_on_host(int layer) const;
  UpdateRange update_range(const Lease& lease) const;
  /// A weight each; of running statistics what the whole mini-batch has, [C] fp64, undefined for the others.
  using FoundStatistics = std::vector<at::Tensor>;
  FoundStatistics find_statistics(int layer);  // collective over replicas
  void update_shard(const Lease& lease, const BegunUpdate& step, const FoundStatistics& found);
  void update_on_host(int layer);
  void gather_weights(const Action& action);
  const LayerCuts& cuts_of(int layer);
  ForwardContext context(int layer, int micro_batch);
  int local_uses(int value) const;
  bool is_local(int layer) const;
  bool is_full(int micro_batch) const;

  const Sequential& model_;
  StepPlan plan_;
  MachineOptions options_;
  LayerStore& store_;
  const Optimizer* optimizer_;
  MeshGroups& groups_;
  OffloadedActivations* offloaded_;
  std::unique_ptr<TensorGroup> tensor_;  // null: no tensor parallelism

  StepInputs inputs_;
  StepEnd step_end_;
  LossSink loss_;
  std::vector<int> sends_;  // per value: sends a micro-batch, from the program
  Tables tables_;
  std::vector<at::Tensor> input_gradients_;           // per batch input
  std::map<std::pair<int, int>, LayerGraph> graphs_;  // (layer, micro-batch)
  std::map<int, LayerCuts> cuts_;                     // layer
  std::map<int, GradientReduction> reductions_;       // layer: under way
  LayerTimes layer_times_;
  /// Sums of squares that the host is making of a layer's gradient, since it began to leave the device.
  struct HostSquares {
    at::Tensor blocks;
    Completion added;
  };
  std::map<int, HostSquares> host_squares_;
  std::map<int, std::pair<Lease, AllGather>> gathers_;  // layer: updated weights under way
  std::deque<std::vector<at::Tensor>> delayed_;         // by step, layer by layer; the oldest first
  LaneTrace* lane_trace_;
  DeviceLanes* device_lanes_ = nullptr;  // null: nobody asks
  BatchRows* rows_;
  // Null: no layer is updated on the host.
  std::unique_ptr<ThreadPool> host_threads_;
  std::unique_ptr<Executor> host_updates_;
};

}  // namespace strata
