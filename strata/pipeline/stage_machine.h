/// Performs a rank's program on real stages, for training and evaluation.
///
/// Source   GPipe (Huang et al. 2019), 1F1B (Narayanan et al. 2021); program from strata/schedule.
/// Threads  one machine belongs to one rank's thread.
/// Errors   passes on what layers, the group and the allocator throw, prefixed with the action.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/track_trace.h"
#include "strata/comm/collectives.h"
#include "strata/comm/context_group.h"
#include "strata/comm/group.h"
#include "strata/comm/one_bit_mean.h"
#include "strata/comm/tensor_group.h"
#include "strata/data/batch.h"
#include "strata/device/thread_pool.h"
#include "strata/nn/graph/sequential.h"
#include "strata/optim/lamb.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/batch_rows.h"
#include "strata/pipeline/device_tracks.h"
#include "strata/pipeline/gradient_filter.h"
#include "strata/pipeline/layer_graph.h"
#include "strata/pipeline/layer_seconds.h"
#include "strata/pipeline/offloaded_activations.h"
#include "strata/pipeline/step_end.h"
#include "strata/pipeline/value_table.h"
#include "strata/schedule/execute.h"
#include "strata/schedule/step_plan.h"
#include "strata/tier/gradient_reduction.h"
#include "strata/tier/store.h"

namespace strata {

/// Options that must be equal on every rank, in addition to the plan; constant for the machine's
/// life.
struct MachineOptions {
  std::uint64_t seed = 1;      ///< seed of initial values and dropout
  double clip = 0;             ///< largest gradient norm; 0: no clipping
  double label_smoothing = 0;  ///< in training
};

/// A forward-only pass over new tokens of sequences, whose earlier tokens the layers keep.
struct Decoding {
  const std::map<int, LayerCache>& caches;  ///< by layer of this rank
  /// The number of the pass, which its messages carry: no collective ends a pass, so a stage may be
  /// several passes ahead of the next one.
  std::int32_t pass = 0;
  std::vector<at::Tensor> outputs = {};  ///< set by the last layer
};

/// One step's inputs.
struct StepInputs {
  std::vector<MicroBatch> micro_batches;  ///< on the rank's device
  std::int64_t step = 0;                  ///< counts from 0
  std::int64_t valid_tokens = 0;
  double learning_rate = 0;
  bool updates = true;                        ///< false: only gradients are computed
  bool training = true;                       ///< false: forward only
  std::vector<at::Tensor>* scores = nullptr;  ///< as LossSink::scores
  Decoding* decoding = nullptr;               ///< null: the inputs are whole samples
};

class StageMachine final : public Machine {
 public:
  /// `plan`: its programs will run. `optimizer` may be null for forward-only programs, `offloaded`
  /// if no activation leaves the device. `track_trace`: records updates on the host; null: not
  /// recorded. `rows`: source of embeddings; null: the mini-batch contains them. `filter`: changes
  /// gradients before the update; null: nothing does.
  StageMachine(const Sequential& model, StepPlan plan, const MachineOptions& options,
               LayerStore& store, const Optimizer* optimizer, MeshGroups& groups,
               OffloadedActivations* offloaded = nullptr, TrackTrace* track_trace = nullptr,
               BatchRows* rows = nullptr, GradientFilter* filter = nullptr);

  /// Sets the inputs of the next run of `program` and clears gradients and loss.
  void begin(const Program& program, StepInputs inputs);
  void perform(const Action& action) override;

  /// Call after the last action of a step; its outcome can be taken at any later time.
  void end() {
    finish_updates();
    end_sign_update();
    step_end_.post(inputs_.valid_tokens);
  }

  /// The updates that shard groups have made apart (one_bit_adam.h); none: they have the same
  /// weights.
  const SignRound& sign_round() const { return sign_round_; }
  void set_sign_round(const SignRound& round) { sign_round_ = round; }

  /// The frozen trust ratio of a layer's weight (one_bit_lamb.h), [2] fp32 in the memory of this
  /// machine; undefined: it has none.
  at::Tensor frozen_ratio(int layer, std::size_t weight);

  /// The outcome of the oldest step that ended and was not taken; waits for the device.
  StepOutcome take_outcome() { return step_end_.take(); }

  /// The mean loss over the ranks; for programs without kReduceNormAndLoss. Collective.
  double reduce_loss();

  /// The loss scale for the next step; waits for the device.
  LossScale loss_scale() const { return step_end_.carried(); }
  void set_loss_scale(const LossScale& scale) { step_end_.carry(scale); }

  /// After the last backward of a step: the gradient of an input of the mini-batch, for all samples
  /// passed to begin(), without the loss scale. Undefined if no layer of the rank reads it.
  const at::Tensor& input_gradient(int batch_input) const { return input_gradients_[batch_input]; }

  /// From now on records the device's work for each layer, message and end of a step. Null: stops.
  /// `tracks` must outlive the machine or the next call.
  void trace_device(DeviceTracks* tracks) { device_tracks_ = tracks; }
  /// Device work enqueued during its lifetime belongs to this track.
  DeviceTracks::Span device_span(TrackKind track, int layer) {
    return device_tracks_ ? device_tracks_->span(track, layer) : DeviceTracks::Span();
  }

  /// Data between two actions. A copy shares the tensors.
  struct Tables {
    ValueTable values;
    GradientTable gradients;
    std::map<std::pair<int, int>, at::Tensor> received_ties;  ///< (tie, using layer)

    /// Copies the tensors to the addresses of `to`, which has the same entries.
    void copy_to(Tables& to) const;
    /// A copy in which tensors that cannot be written to are copied.
    Tables dense() const;
  };
  const Tables& tables() const { return tables_; }
  void set_tables(Tables tables) { tables_ = std::move(tables); }

  /// Makes the compute stream wait for the readers of this rank's exported buffers, because a
  /// recording writes to them without checking.
  void reclaim_exports() {
    RankDevice& device = groups_.world.rank_device();
    device.exports.reclaim(device.stream);
  }

  /// Call after a program: frees the inputs before the next program begins.
  void let_inputs_go() { inputs_.micro_batches.clear(); }

  /// For a repeated step: keeps the state of begin(), replaces the inputs and returns the old ones.
  StepInputs exchange_inputs(StepInputs inputs) {
    return std::exchange(inputs_, std::move(inputs));
  }

  /// Layers that compute a gradient of the mini-batch, whose address changes in every step.
  LayerSet layers_with_host_inputs() const;
  /// Whether an action keeps host state in this machine from step to step.
  bool needs_host(const Action& action) const {
    return action.op == Op::kReduceNormAndLoss && filter_ != nullptr;
  }

  /// The seconds of this rank's layers in the last training steps.
  const LayerTimes& layer_times() const { return layer_times_; }

  /// Gathers the parts of a layer that the replicas' hosts have updated. Collective.
  void gather_from_host(int layer);

  /// The elements of a layer that this replica sums and owns.
  FlatRange part_of(int layer) { return cuts_of(layer).parts[groups_.weights.rank()]; }

 private:
  void forward(const Action& action);
  void forward_layer(int layer, int micro_batch);
  void fetch_rows();
  void offload_activations(const Action& action);
  void recompute(const Action& action);
  void backward(const Action& action);
  void backward_layer(int layer, int micro_batch, Op op);
  void backward_weights(int layer, int micro_batch);
  LayerGraph take_graph(int layer, int micro_batch);
  void make_input_gradients();
  void keep_input_gradient(int batch_input, int micro_batch, const at::Tensor& gradient);
  MessageTag activation_tag(const Action& action) const;
  void send_activation(const Action& action);
  void send_gradient(const Action& action);
  void receive(const Action& action);
  void send_tied(const Action& action);
  void receive_tied(const Action& action);
  void add_ties(const Action& action);
  void reduce_gradients(const Action& action);
  struct Reduction;
  bool may_sum_early(const Reduction& reduction) const;
  void sum_gradients(Reduction& reduction);
  void await_gradients(const Action& action);
  void filter_gradients();
  void reduce_norm_and_loss();
  void sum_squares_of(int layer, const at::Tensor& blocks);
  void offload_gradients(int layer);
  void add_squares_on_host(int layer);
  void update(const Action& action);
  void update_with_others(LayerRange layers);
  bool updates_on_host(int layer) const;
  bool has_hidden_matrices(int layer) const;
  void update_with_matrices(const Pin& pin, const UpdateRange& range, const BegunUpdate& begun);
  /// Per weight; for running statistics the result of the whole mini-batch, [C] fp64; undefined for
  /// other weights.
  using ColumnStatistics = std::vector<at::Tensor>;
  LambStep ratio_step() const;
  const WeightBlocks& weight_blocks_of(int layer);
  void begin_ratio_update(int layer);
  std::vector<double> sum_weights();
  void finish_ratio_updates();
  void remember_ratios(int layer, const std::vector<double>& ratios);
  std::vector<FrozenRatio>& frozen_ratios_of(int layer);
  void begin_factor_update(const OneBitStep& step, Pin pin, ColumnStatistics found,
                           UpdateRange range);
  std::vector<double> max_over_parts();
  void finish_factor_updates();
  struct RatioUpdate;
  void move_by_ratios(const LambStep& step, const BegunUpdate& begun, const RatioUpdate& update,
                      const std::vector<double>& ratios);
  /// Whether shard groups keep their own gradients in this step and send the signs of momenta.
  bool sends_signs() const;
  /// Whether each replica is such a group, so that no gradients are added.
  bool keeps_gradients() const { return sends_signs() && groups_.shard.size() == 1; }
  bool synchronises() const;
  OneBitStep sign_step() const;
  void update_by_signs(const OneBitStep& step, int layer);
  void update_alone(const OneBitStep& step, int layer);
  void update_apart(const OneBitStep& step, int layer);
  void send_signs(const OneBitStep& step, int layer);
  void move_by_mean(const SignRound& round, const OneBitStep& step, Pin pin, ColumnStatistics found,
                    UpdateRange range);
  void end_sign_update();
  struct SignUpdate;
  void average_signs(SignUpdate& update);
  void finish_first_sign_update();
  void finish_sign_updates();
  /// Updates that wait for other ranks are in progress until an action that is no update.
  void finish_updates() {
    finish_sign_updates();
    finish_factor_updates();
    finish_ratio_updates();
  }
  const std::vector<FlatRange>& padding_of(int layer);
  UpdateRange update_range(const Pin& pin) const;
  Pin acquire_to_update(int layer);
  ColumnStatistics find_statistics(int layer);  // collective over replicas
  void move_statistics_of(const Pin& pin, const ColumnStatistics& found);
  void update_shard(const Pin& pin, const BegunUpdate& step, const ColumnStatistics& found);
  void update_on_host(int layer);
  void start_gather(int layer);
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
  std::unique_ptr<TensorGroup> tensor_;    // null: no tensor parallelism
  std::unique_ptr<ContextGroup> context_;  // null: samples are whole, attention is not cut

  StepInputs inputs_;
  StepEnd step_end_;
  LossSink loss_;
  std::vector<int> sends_;  // per value: sends a micro-batch, from the program
  Tables tables_;
  std::vector<at::Tensor> input_gradients_;           // per batch input
  std::map<std::pair<int, int>, LayerGraph> graphs_;  // (layer, micro-batch)
  std::map<int, LayerCuts> cuts_;                     // layer
  std::map<int, std::vector<FlatRange>> padding_;     // layer
  /// The sum of a layer's gradients over replicas.
  struct Reduction {
    int layer;
    GradientReduction gradients;
    bool first, last;  ///< of the layer in this step
  };
  std::list<Reduction> reductions_;  // in progress, in the order of their starts
  /// The update of a rank's shard of a layer whose shard groups send signs.
  struct SignUpdate {
    OneBitStep step;
    SignRound round;  ///< with this update
    Pin pin;
    ColumnStatistics found;
    UpdateRange range;
    FlatRange own;  ///< the part of the shard that this rank averages
    OneBitMean mean;
  };
  std::deque<SignUpdate> sign_updates_;  // in progress, in the order of their layers
  /// The update of a layer whose weights wait for their trust ratios.
  struct RatioUpdate {
    Pin pin;
    ColumnStatistics found;
    UpdateRange range;
    AllGather squares;  ///< of the layer's blocks
  };
  std::deque<RatioUpdate> ratio_updates_;      // in progress, in the order of their layers
  std::map<int, WeightBlocks> weight_blocks_;  // layer
  /// The update of a layer whose weights wait for the largest factors of other ranks' parts.
  struct FactorUpdate {
    OneBitLambStep step;
    Pin pin;
    ColumnStatistics found;
    UpdateRange range;
    std::vector<double> largest;  ///< of this rank's parts, one for each weight with decay
  };
  std::deque<FactorUpdate> factor_updates_;  // in progress, in the order of their layers
  std::map<int, std::vector<FrozenRatio>> frozen_ratios_;  // layer
  SignRound sign_round_;                                   // without this step's update
  LayerTimes layer_times_;
  /// Sums of squares of a layer's gradient that the host computes once the gradient has been
  /// offloaded.
  struct HostSquares {
    at::Tensor blocks;
    Completion added;
  };
  std::map<int, HostSquares> host_squares_;
  // per layer: exchange of updated weights in progress
  std::map<int, std::pair<Pin, AllGather>> gathers_;
  TrackTrace* track_trace_;
  DeviceTracks* device_tracks_ = nullptr;  // null: not traced
  BatchRows* rows_;
  GradientFilter* filter_;
  // Null: no layer is updated on the host.
  std::unique_ptr<ThreadPool> host_threads_;
  std::unique_ptr<Executor> host_updates_;
};

}  // namespace strata
