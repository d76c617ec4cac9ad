/// Trains a model on a mesh, one object per rank: build it in every rank's thread and call the same
/// methods in the same order.
///
///     const StepPlan plan = plan_steps(model, {.partition = {{0, 3, 6}}, .micro_batch = 2});
///     run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
///       Trainer trainer(model, plan, group);
///       trainer.initialise();
///       for (...) trainer.step(loader.at(...), learning_rate);
///     });
///
/// Threads  one rank's thread. All methods except those that list states are collective.
/// Errors   UserError for a schedule that does not fit; errors of layers, peers and budgets,
///          prefixed with the failing action.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/track_trace.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/named_state.h"
#include "strata/comm/group.h"
#include "strata/data/batch.h"
#include "strata/device/account.h"
#include "strata/device/link.h"
#include "strata/nn/graph/sequential.h"
#include "strata/optim/loss_scale.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/outer_step.h"
#include "strata/pipeline/batch_buffers.h"
#include "strata/pipeline/plan_steps.h"
#include "strata/pipeline/recorded_machine.h"
#include "strata/schedule/step_plan.h"
#include "strata/schedule/trace.h"
#include "strata/tier/disk_residency.h"
#include "strata/tier/host_backend.h"

namespace strata {

struct DiskCommit;
class MeanWeights;
class OuterSteps;

/// A tensor over a replica's samples, which begin at `first_sample` of the mini-batch. Undefined or
/// empty on ranks that do not have it.
struct ReplicaTensor {
  at::Tensor values;  ///< [samples, ...]
  std::int64_t first_sample = 0;
};
struct ReplicaScores {
  std::vector<float> values;  ///< one per sample
  std::int64_t first_sample = 0;
  double loss = 0;  ///< mean over all replicas' valid samples
};

/// Where a rank keeps what the plan places on disk: in its own folder rank-NNNNN.
struct TrainerDisk {
  std::string path;
  std::int64_t bytes = 0;  ///< budget of a rank; 0: all free space
  /// true: resume from the step in the folder; false: the folder must have none
  bool resume = false;
  ChunkFileOptions file = {.setting = "memory.disk.path"};
};

/// Options of a trainer in addition to its plan.
struct TrainerOptions {
  MachineOptions machine;
  /// Precision of weights and activations. In 16 bit the optimizer keeps fp32 weights and gradients
  /// are accumulated in fp32; fp16 scales the loss.
  at::ScalarType precision = at::kFloat;
  OptimizerOptions optimizer;
  OuterOptions outer;  ///< is_on() if the plan's replicas train apart
  std::int64_t host_bytes =
      0;             ///< budget of a rank's host memory for what the plan keeps there; 0: none
  LinkOptions link;  ///< between device and host memory
  GraphOptions graph;
  TrainerDisk disk;
  BatchRows* rows =
      /// source of embeddings, on the ranks that read them; null: batches contain them
      nullptr;
  GradientFilter* filter = nullptr;  ///< changes the rank's gradients before the update
  /// Makes the backend of each rank's state that lives on the device.
  std::function<std::unique_ptr<StateBackend>()> backend = resident_backend;
  Residency residency = Residency::kUntilReleased;
};

class Trainer {
 public:
  /// `model`, built for the plan's tensor-parallel ranks, must outlive the trainer.
  Trainer(const Sequential& model, StepPlan plan, const Group& world, TrainerOptions options = {});
  ~Trainer();

  /// Draws initial values, keyed by seed and name: the same on any mesh.
  void initialise();

  /// Runs one step with an update on all ranks.
  const StepOutcome& step(const MiniBatch& batch, double learning_rate);

  /// step() in two halves: begin_step() enqueues a step, end_step() waits for the oldest step
  /// begun. At most one more step may be begun before.
  void begin_step(const MiniBatch& batch, double learning_rate);
  const StepOutcome& end_step();

  /// Forward and backward without an update; gradients stay for gradients().
  const StepOutcome& gradient_step(const MiniBatch& batch);

  /// After step() or gradient_step(): the gradient of the mean loss with respect to an input, if
  /// the model requests it, on the ranks of the stage that reads the input. The loss is a replica's
  /// own if replicas train apart.
  ReplicaTensor input_gradient(const std::string& batch_input) const;

  /// Mean loss over the valid tokens of the batches, no dropout. If replicas have weights of their
  /// own, that of the mean of these weights.
  double evaluate(const std::vector<MiniBatch>& batches);

  /// Scores of a model that scores samples, without dropout; on the ranks of the last stage.
  ReplicaScores score(const MiniBatch& batch);

  /// Whether replicas have weights of their own between the steps that bring them together.
  bool has_rounds() const;
  /// Whether they have them now, and the optimizer's states hold a part of a round of 0/1 Adam.
  bool in_sign_round() const;

  /// What this rank updates, for loading: fp32 weights (tied ones at their owner), optimizer states
  /// and the loss scale. Where replicas have rounds, a weight is listed twice: the rank's own, and
  /// the one that replicas share. Call loaded() after filling them.
  std::vector<NamedState> weights();
  std::vector<NamedState> slots();

  /// The same layer by layer, which states on disk require, because the host holds only one layer's
  /// states at a time. `fill` gets the weights and the optimizer states of a layer.
  using FillStates = std::function<void(const std::vector<NamedState>& weights,
                                        const std::vector<NamedState>& slots)>;
  void fill(const FillStates& fill);

  /// Collective. Copies loaded weights to where layers read them: other precisions, replicas that
  /// share them, other stages that use a tied one.
  void loaded();

  /// What this rank owns, for saving: each element occurs once over all ranks. Ranks of a stage
  /// have the same states in the same order. Gradients: after step() or gradient_step(), before an
  /// evaluation; those of the first replica if replicas train apart. The weights of replicas that
  /// have weights of their own are their mean: owned_weights() and owned_slots() are collective.
  std::vector<NamedState> owned_weights();
  std::vector<NamedState> owned_slots();
  std::vector<NamedState> owned_gradients();  ///< signs and trust ratios overwrite them

  /// For states on disk: makes the states of the last step, including those that are not on disk,
  /// the ones that resume() reads, on all ranks or none. Overlaps with the next steps. Collective,
  /// like the rest.
  void commit(DiskCommit commit);
  void await_commit();  ///< fails unless resume() would find the commit
  bool on_disk() const { return disk_ != nullptr; }
  bool resumes_on_disk() const { return on_disk() && options_.disk.resume; }
  TrainingPosition resume();  ///< instead of initialise()

  /// The same for one layer, the only way to access states on disk. The loss scale counts as a
  /// state of a layer.
  const std::vector<int>& layers() const { return layers_; }
  std::vector<NamedState> owned_weights(int layer);
  std::vector<NamedState> owned_slots(int layer);

  MeshGroups& groups() { return groups_; }
  const StepPlan& plan() const { return plan_; }
  /// What this rank keeps of its layers, for work between steps.
  LayerStore& store() { return store_; }

  /// How many segments were recorded and replayed.
  const RecordedMachine::Use& recorded_use() const { return recorded_->use(); }

  /// The rank's host memory, and what it has moved and waited for since its creation.
  struct OffloadUse {
    std::int64_t host_peak_bytes = 0;
    std::int64_t bytes_to_device = 0;
    std::int64_t bytes_to_host = 0;
    /// for weights in transit, including the preceding updates
    double weights_wait_seconds = 0;
    double gradients_wait_seconds = 0;    ///< for gradients being offloaded
    double activations_wait_seconds = 0;  ///< for activations in transit in either direction
    DiskResidency::Use disk;
  };
  OffloadUse offload_use() const;

  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  /// Seconds of this rank's layers in the last training steps.
  const LayerTimes& layer_times() const { return machine_->layer_times(); }
  /// events of everything performed; the reader clears it
  TraceLog& trace() { return trace_; }
  /// Events of the rank's tracks that have ended since the last call: transfers, updates on the
  /// host.
  std::vector<TrackEvent> take_tracks();
  /// From now on they include the device's work, by its own clock, if `compute` has a queue.
  void trace_device(Stream compute);

 private:
  Backends make_backends();
  std::unique_ptr<DiskResidency> make_disk();
  std::map<int, LayerOnDisk> layers_on_disk() const;
  std::string disk_layout() const;
  void go_to_common_step(ChunkFile& file, const std::string& folder,
                         const std::vector<std::int64_t>& chunks);
  void round_weights();
  void bring_weights(bool round);
  void run(const MiniBatch& batch, double learning_rate, bool training, bool update,
           std::vector<at::Tensor>* scores = nullptr);
  MiniBatch own_part(const MiniBatch& batch);
  std::int64_t own_targets(const MiniBatch& all, const MiniBatch& part) const;
  double loss_of(const MiniBatch& batch);
  bool replicas_differ() const;
  void bring_changed_weights();
  void end_round();
  void use_mean_weights();
  void use_own_weights();
  ShardPlacement placement_of(int layer) const;
  void make_gradient_buffers();
  void initialise_layer(const Pin& pin);
  void remember_scale();
  void remember_round();
  template <typename F>
  void for_each_weight(const std::vector<int>& layers, StateKinds kinds, bool owned, F f);
  std::vector<NamedState> weight_states(const std::vector<int>& layers, bool owned);
  std::vector<NamedState> slot_states(const std::vector<int>& layers, bool owned);
  void add_state_of_each_replica(std::vector<NamedState>& states, const NamedState& own,
                                 const Group& replicas, bool owned) const;
  FlatRange common(FlatRange wanted, bool owned) const;
  bool in_round() const;
  FlatRange of_own(const Pin& pin, std::size_t weight, FlatRange wanted, bool owned) const;
  bool is_of_each_replica(const std::string& slot, bool owned) const;
  using PinPtr = std::shared_ptr<const Pin>;
  void add_replica_weight(std::vector<NamedState>& states, const std::string& name,
                          const PinPtr& pin, std::size_t weight, FlatRange wanted,
                          bool owned) const;
  void add_outer_states(std::vector<NamedState>& states, const std::string& name, const PinPtr& pin,
                        std::size_t weight, FlatRange wanted, bool owned) const;
  void add_optimizer_slots(std::vector<NamedState>& states, const std::string& name,
                           const PinPtr& pin, std::size_t weight, FlatRange wanted,
                           bool owned) const;
  void add_frozen_ratio(std::vector<NamedState>& states, const std::string& name, const Pin& pin,
                        std::size_t weight, bool owned);
  void add_run_states(std::vector<NamedState>& states, bool owned);

  const Sequential& model_;
  StepPlan plan_;
  TrainerOptions options_;
  MeshGroups groups_;
  std::vector<int> layers_;  // of this rank
  std::unique_ptr<Optimizer> optimizer_;
  MemoryAccount& host_account_;  // outlived by what other ranks still read
  TraceLog trace_;
  TrackTrace track_trace_;  // outlives its writers
  std::unique_ptr<DeviceTracks>
      device_tracks_;                    // null: not traced, or the rank has no asynchronous device
  HostBackend* host_backend_ = nullptr;  // of the store; null: everything is on the device
  DiskResidency* disk_ = nullptr;        // of the store; null: no state is on a disk
  Completion committed_;                 // the last commit
  bool has_committed_ = false;           // or started to
  LayerStore store_;
  std::unique_ptr<MeanWeights> mean_;                // null: replicas always have equal weights
  std::unique_ptr<OuterSteps> outer_;                // null: replicas make updates together
  std::unique_ptr<OffloadedActivations> offloaded_;  // null: everything is on the device
  std::unique_ptr<StageMachine> machine_;
  std::unique_ptr<RecordedMachine> recorded_;  // runs in front of machine_
  BatchBuffers batch_buffers_;
  std::int64_t steps_done_ = 0;
  // This replica's samples of the last mini-batch, without padding.
  std::int64_t first_sample_ = 0, samples_ = 0;
  // What a replica that trains apart divides its loss by, and what all divide theirs by together.
  struct Targets {
    std::int64_t own = 0, all = 0;
  };
  Targets targets_;             // of the last mini-batch
  std::deque<Targets> unread_;  // of steps whose outcome has not been read
  StepOutcome outcome_;
  // In the form of checkpoints: the loss scale, and the round of updates that replicas made apart.
  at::Tensor scale_state_, round_state_;
};

// These set a trainer to the state of a checkpoint, of any mesh. Collective.

/// Loads weights, optimizer states and step count; returns the position of the run. `model`: what
/// the trainer was built for; the checkpoint must have the same. `path`: a checkpoint or a folder
/// of several.
TrainingPosition load_trainer(Trainer& trainer, const CheckpointModel& model,
                              const std::string& path);

/// Weights only, also from any Hugging Face folder.
void load_weights(Trainer& trainer, const CheckpointModel& model, const std::string& path);

}  // namespace strata
