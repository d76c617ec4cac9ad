/// Trains a model on a mesh, one object a rank: build it in every rank's thread, call the same
/// methods in the same order.
///
///     const StepPlan plan = plan_steps(model, {.partition = {{0, 3, 6}}, .micro_batch = 2});
///     run_thread_ranks({.ranks = 2}, [&](Group& group, MemoryAccount&) {
///       Trainer trainer(model, plan, group);
///       trainer.initialise();
///       for (...) trainer.step(loader.at(...), learning_rate);
///     });
///
/// Threads  one rank's thread. Methods other than those that list states are collective.
/// Errors   UserError for a schedule that doesn't fit; what layers, peers and budgets throw, with the
///          action's place in front.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/lane_trace.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/named_state.h"
#include "strata/comm/group.h"
#include "strata/data/batch.h"
#include "strata/device/account.h"
#include "strata/device/link.h"
#include "strata/nn/sequential.h"
#include "strata/optim/loss_scale.h"
#include "strata/optim/optimizer.h"
#include "strata/pipeline/batch_buffers.h"
#include "strata/pipeline/recorded_machine.h"
#include "strata/schedule/step_plan.h"
#include "strata/schedule/trace.h"
#include "strata/tier/disk_residency.h"
#include "strata/tier/host_medium.h"

namespace strata {

struct DiskCommit;

/// Something of a replica's samples, which begin at `first_sample` of the mini-batch. Undefined, or
/// empty, on ranks that don't have it.
struct ReplicaTensor {
  at::Tensor values;  ///< [samples, ...]
  std::int64_t first_sample = 0;
};
struct ReplicaScores {
  std::vector<float> values;  ///< one a sample
  std::int64_t first_sample = 0;
  double loss = 0;  ///< mean over all replicas' valid samples
};

/// The plan that these decisions make of a model; strata/plan decides by cost.
StepPlan plan_steps(const Sequential& model, StepDecisions decisions);

/// Where a rank keeps what the plan has on disk: in a folder rank-NNNNN of its own.
struct TrainerDisk {
  std::string path;
  std::int64_t bytes = 0;  ///< budget of a rank; 0: what is free
  bool resume = false;     ///< from the step that lies there; else nothing may lie there
  ChunkFileOptions file = {.setting = "memory.disk.path"};
};

/// What a trainer does beside its plan.
struct TrainerOptions {
  MachineOptions machine;
  /// Of weights and activations. In 16 bit the optimizer keeps fp32 weights and gradients are added
  /// in fp32; fp16 scales the loss.
  at::ScalarType precision = at::kFloat;
  OptimizerOptions optimizer;
  std::int64_t host_bytes =
      0;             ///< budget of a rank's host memory, for what the plan keeps there; 0: none
  LinkOptions link;  ///< between device and host memory
  GraphOptions graph;
  TrainerDisk disk;
  BatchRows* rows =
      nullptr;  ///< of a model that reads rows, on the ranks that do; null: batches have them
  /// Where each rank's own state is between uses; peers' shards are gathered above it.
  std::function<std::unique_ptr<Medium>()> medium = device_medium;
  Residency residency = Residency::kUntilReleased;
};

class Trainer {
 public:
  /// `model`, made for the plan's tensor-parallel ranks, must outlive the trainer.
  Trainer(const Sequential& model, StepPlan plan, const Group& world, TrainerOptions options = {});

  /// First values, keyed by seed and name: the same on any mesh.
  void initialise();

  /// One update of all ranks.
  const StepOutcome& step(const MiniBatch& batch, double learning_rate);

  /// The same in halves: the first gives the device what it shall do, the second waits for the oldest
  /// step that was begun. At most one step more may be begun before.
  void begin_step(const MiniBatch& batch, double learning_rate);
  const StepOutcome& end_step();

  /// Forward and backward without an update; gradients stay for gradients().
  const StepOutcome& gradient_step(const MiniBatch& batch);

  /// After step() or gradient_step(): the gradient of the mean loss at an input whose gradient the
  /// model wants, on the ranks of the stage that reads it.
  ReplicaTensor input_gradient(const std::string& batch_input) const;

  /// Mean loss over the valid tokens of the batches, no dropout.
  double evaluate(const std::vector<MiniBatch>& batches);

  /// What a model that scores samples makes of them, no dropout; on the ranks of the last stage.
  ReplicaScores score(const MiniBatch& batch);

  /// What this rank updates, for loading: fp32 weights (tied ones at their owner), optimizer states
  /// and the loss scale. Call loaded() when they are filled in.
  std::vector<NamedState> weights();
  std::vector<NamedState> slots();

  /// The same layer by layer, as states that live on disk have to be: no more of them are on the host
  /// at once. `fill` gets the weights and the optimizer states of a layer.
  using FillStates = std::function<void(const std::vector<NamedState>& weights,
                                        const std::vector<NamedState>& slots)>;
  void fill(const FillStates& fill);

  /// Collective. Brings loaded weights to wherever layers read them: other precisions, replicas
  /// that share them, other stages that use a tied one.
  void loaded();

  /// What this rank answers for, for saving: each element occurs once over all ranks. Ranks of a
  /// stage have the same states in the same order. Gradients: after step() or gradient_step().
  std::vector<NamedState> owned_weights();
  std::vector<NamedState> owned_slots();
  std::vector<NamedState> owned_gradients();

  /// Of what lives on disk: makes the states that the last step has left, and what is not on disk, the
  /// ones that resume() finds; on all ranks or on none, beside the next steps. Collective, as is the rest.
  void commit(DiskCommit commit);
  void await_commit();  ///< refuses unless resume() would find it
  bool on_disk() const { return disk_ != nullptr; }
  bool resumes_on_disk() const { return on_disk() && options_.disk.resume; }
  TrainingPosition resume();  ///< instead of initialise()

  /// The same of a layer; states that live on disk can be had in no other way. The loss scale, which is
  /// nobody's, is a layer's, too.
  const std::vector<int>& layers() const { return layers_; }
  std::vector<NamedState> owned_weights(int layer) { return weight_states({layer}, true); }
  std::vector<NamedState> owned_slots(int layer) { return slot_states({layer}, true); }

  MeshGroups& groups() { return groups_; }

  /// Segments that were recorded, and replayed.
  const RecordedMachine::Use& recorded_use() const { return recorded_->use(); }

  /// What the rank keeps in host memory, and what it has moved and waited for since it was made.
  struct OffloadUse {
    std::int64_t host_peak_bytes = 0;
    std::int64_t bytes_to_device = 0;
    std::int64_t bytes_to_host = 0;
    double weights_wait_seconds = 0;      ///< for weights on their way, and the updates before them
    double gradients_wait_seconds = 0;    ///< for gradients on their way to the host
    double activations_wait_seconds = 0;  ///< for activations on their way, there or back
    DiskResidency::Use disk;
  };
  OffloadUse offload_use() const;

  std::int64_t steps_done() const { return steps_done_; }
  void set_steps_done(std::int64_t steps) { steps_done_ = steps; }
  /// Seconds of this rank's layers in the last training steps.
  const LayerTimes& layer_times() const { return machine_->layer_times(); }
  TraceLog& trace() { return trace_; }  ///< of everything performed; clear() it when read
  /// What has ended beside the rank since the last call: transfers, updates on the host.
  std::vector<LaneEvent> take_lanes();
  /// From now on what the device does is among them, by its own clock, if `compute` has a queue.
  void trace_device(Stream compute);

 private:
  std::unique_ptr<Medium> make_medium();
  std::unique_ptr<DiskResidency> make_disk();
  std::map<int, LayerOnDisk> layers_on_disk() const;
  std::string disk_layout() const;
  void go_to_common_step(ChunkFile& file, const std::string& folder,
                         const std::vector<std::int64_t>& chunks);
  void round_weights();
  void bring_weights(bool round);
  void run(const MiniBatch& batch, double learning_rate, bool training, bool update,
           std::vector<at::Tensor>* scores = nullptr);
  ShardPlacement placement_of(int layer) const;
  void make_gradient_buffers();
  void initialise_layer(const Lease& lease);
  void remember_scale();
  std::string global_name(int layer, int weight) const;
  template <typename F>
  void for_each_weight(const std::vector<int>& layers, StateKinds kinds, bool owned, F f);
  std::vector<NamedState> weight_states(const std::vector<int>& layers, bool owned);
  std::vector<NamedState> slot_states(const std::vector<int>& layers, bool owned);

  const Sequential& model_;
  StepPlan plan_;
  TrainerOptions options_;
  MeshGroups groups_;
  std::vector<int> layers_;  // of this rank
  std::unique_ptr<Optimizer> optimizer_;
  MemoryAccount& host_account_;  // which what others still read outlives
  TraceLog trace_;
  LaneTrace lane_trace_;  // behind those who write to it
  std::unique_ptr<DeviceLanes>
      device_lanes_;  // null: nobody asks, or there is nothing behind the rank's back
  HostMedium* host_medium_ = nullptr;  // of the store; null: everything is on the device
  DiskResidency* disk_ = nullptr;      // of the store; null: nothing is on a disk
  Completion committed_;               // the last one
  bool has_committed_ = false;         // or begun to
  LayerStore store_;
  std::unique_ptr<OffloadedActivations> offloaded_;  // null: everything is on the device
  std::unique_ptr<StageMachine> machine_;
  std::unique_ptr<RecordedMachine> recorded_;  // in front of it
  BatchBuffers batch_buffers_;
  std::int64_t steps_done_ = 0;
  // Of the last mini-batch, the samples that this replica had of it, without padding.
  std::int64_t first_sample_ = 0, samples_ = 0;
  StepOutcome outcome_;
  at::Tensor scale_state_;  ///< the loss scale as checkpoints have it
};

// Bring a trainer to where a checkpoint is, whatever mesh wrote it. Collective.

/// Weights, optimizer states and step count; returns where the run is. `model`: what the trainer was
/// made for; the checkpoint must be of the same. `path`: a checkpoint or the folder that holds several.
TrainingPosition load_trainer(Trainer& trainer, const CheckpointModel& model,
                              const std::string& path);

/// Weights only, also of any Hugging Face folder.
void load_weights(Trainer& trainer, const CheckpointModel& model, const std::string& path);

}  // namespace strata
