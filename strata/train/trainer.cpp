// The trainer makes no decisions about a step: programs, cut and shards come from the plan. It
// allocates buffers, draws initial values, feeds the machine, and reports which action failed.
#include "strata/train/trainer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "strata/base/errors.h"
#include "strata/device/account.h"
#include "strata/device/block_malloc.h"
#include "strata/device/device.h"
#include "strata/nn/graph/initialise.h"
#include "strata/train/outer_steps.h"

namespace strata {
namespace {

constexpr std::int64_t kDrawnElements = std::int64_t{1} << 18;

// Reports each action at its begin, for ranks that wait too long for this one.
class ProgressReporter final : public Machine {
 public:
  ProgressReporter(Machine& machine, Group& world) : machine_(machine), world_(world) {}
  void perform(const Action& action) override {
    world_.report_progress(words_for(action.op), position_++, action.micro_batch);
    machine_.perform(action);
  }

 private:
  Machine& machine_;
  Group& world_;
  int position_ = 0;
};

// Converts what an action threw; a lack of memory or threads is a SystemError.
Error error_of_action(const std::exception& error, const Device& device) {
  const MemoryAccount* const account = current_memory_account(device.kind);
  const Error found = account ? device_error(error, *account) : to_error(error);
  if (found.kind() != ErrorKind::kInternal || dynamic_cast<const Error*>(&error)) return found;
  return InternalError(
      {.operation = "train.step", .what = "an operator failed", .got = error.what()});
}

// Runs the program; an error names its action.
void execute_located(const Program& program, Machine& stages, TraceLog& trace, Group& world) {
  ProgressReporter machine(stages, world);
  Execution execution(program, machine, &trace);
  const auto place = [&] {
    return "position " + std::to_string(execution.position()) + " \"" +
           to_string(program[execution.position()]) + "\"";
  };
  try {
    execution.advance();
    world.report_progress("the end of the step");
  } catch (const std::exception& error) {
    const Error found = error_of_action(error, world.device());
    ErrorText text = found.text();
    text.where += (text.where.empty() ? "" : ", ") + place();
    throw_error({found.kind(), std::move(text)});
  }
}

// The program up to the norm: a step that leaves its gradients.
Program without_updates(const Program& program) {
  Program gradients;
  for (const Action& action : program) {
    if (action.op != Op::kUpdate) gradients.push_back(action);
    if (action.op == Op::kReduceNormAndLoss) break;
  }
  return gradients;
}

std::vector<int> layers_of(const StepPlan& plan, int pipeline_rank) {
  std::vector<int> layers;
  for (int layer = 0; layer < plan.dataflow().num_layers; ++layer)
    if (plan.pipeline_rank(layer) == pipeline_rank) layers.push_back(layer);
  return layers;
}

// Of the ranks that make an update together. The line along dp is that of the whole mesh.
MeshGroups update_groups(const Group& world, const StepPlan& plan) {
  const StepDecisions& decisions = plan.decisions();
  const int shards = plan.shards().shards;
  if (!decisions.replicas_apart) return make_mesh_groups(world, decisions.mesh, shards);
  const Mesh& mesh = decisions.mesh;
  const auto replica_of = [&](int rank) { return mesh.place(rank)[Axis::kData]; };
  std::vector<int> same;
  for (int rank = 0; rank < mesh.size(); ++rank)
    if (replica_of(rank) == replica_of(world.rank())) same.push_back(rank);
  MeshGroups groups =
      make_mesh_groups(world.subgroup(same, "one replica"), decisions.update_mesh(), shards);
  groups.mesh = mesh;
  groups[Axis::kData] = world.subgroup(mesh.line(world.rank(), Axis::kData), "replicas apart");
  groups[Axis::kData].count_alone();
  return groups;
}

}  // namespace

Trainer::Trainer(const Sequential& model, StepPlan plan, const Group& world, TrainerOptions options)
    : model_(model),
      plan_(std::move(plan)),
      options_(std::move(options)),
      groups_(update_groups(world, plan_)),
      layers_(layers_of(plan_, groups_[Axis::kPipeline].rank())),
      optimizer_(make_optimizer(options_.optimizer)),
      host_account_(immortal_account("host memory of rank " + std::to_string(world.rank()),
                                     options_.host_bytes, "memory.host")),
      store_(make_backends(), options_.residency, world.device(), &host_account_),
      batch_buffers_(world.device()),
      scale_state_(at::zeros({3}, host_options(at::kFloat))),
      round_state_(at::zeros({3}, host_options(at::kFloat))) {
  STRATA_CHECK_EQ(plan_.dataflow().num_layers, model.num_layers(), "train.trainer");
  STRATA_CHECK_EQ(plan_.decisions().sequence_parallel, model.split().sequence, "train.trainer");
  for (const int layer : layers_) store_.insert(layer, model.layout(layer), placement_of(layer));
  make_gradient_buffers();
  STRATA_CHECK_EQ(options_.outer.is_on(), plan_.decisions().replicas_apart, "train.trainer");
  const bool moves_apart = options_.optimizer.kind == OptimizerKind::kZeroOneAdam;
  if (options_.outer.is_on() || moves_apart)
    mean_ =
        std::make_unique<MeanWeights>(store_, moves_apart ? groups_.replica : groups_[Axis::kData]);
  if (options_.outer.is_on()) outer_ = std::make_unique<OuterSteps>(options_.outer, store_, *mean_);
  if (host_backend_)
    offloaded_ = std::make_unique<OffloadedActivations>(
        host_backend_->link(), Stream::compute(world.device()), &host_account_, &trace_);
  machine_ = std::make_unique<StageMachine>(model, plan_, options_.machine, store_,
                                            optimizer_.get(), groups_, offloaded_.get(),
                                            &track_trace_, options_.rows, options_.filter);
  recorded_ = std::make_unique<RecordedMachine>(*machine_, plan_, world.device(), options_.graph);
  if (options_.precision == at::kHalf) machine_->set_loss_scale(LossScale::half());
  remember_scale();
  remember_round();
  store_.trace_waits(&trace_);
}

Trainer::~Trainer() = default;

Backends Trainer::make_backends() {
  Backends backends{.device = options_.backend()};
  if (!plan_.decisions().tiers.layers.empty()) {
    return_large_blocks();
    backends.disk = make_disk();
    disk_ = backends.disk.get();
    backends.host =
        std::make_unique<HostBackend>(options_.link, disk_, &track_trace_, groups_.world.device());
    host_backend_ = backends.host.get();
  }
  backends.peers = std::make_unique<PeerBackend>(groups_.shard, host_backend_);
  return backends;
}

void Trainer::trace_device(Stream compute) {
  if (!compute.queue()) return;
  device_tracks_ = std::make_unique<DeviceTracks>(std::move(compute), track_trace_);
  machine_->trace_device(device_tracks_.get());
}

std::vector<TrackEvent> Trainer::take_tracks() {
  if (device_tracks_) device_tracks_->settle();
  return track_trace_.take();
}

Trainer::OffloadUse Trainer::offload_use() const {
  if (!host_backend_) return {};
  return {.host_peak_bytes = host_account_.peak_bytes(),
          .bytes_to_device = host_backend_->link().bytes_to_device(),
          .bytes_to_host = host_backend_->link().bytes_to_host(),
          .weights_wait_seconds = store_.waited_seconds(StateKind::kWeights) +
                                  store_.waited_seconds(StateKind::kWeightShard),
          .gradients_wait_seconds = store_.waited_seconds(StateKind::kGradients) +
                                    store_.waited_seconds(StateKind::kGradientShard),
          .activations_wait_seconds = offloaded_->waited_seconds(),
          .disk = disk_ ? disk_->use() : DiskResidency::Use{}};
}

ShardPlacement Trainer::placement_of(int layer) const {
  ShardPlacement placement =
      shard_placement(plan_, layer, model_.layout(layer), groups_.shard.rank());
  placement.dtype = options_.precision;
  placement.optimizer_slots = static_cast<int>(optimizer_->slot_names().size());
  return placement;
}

void Trainer::make_gradient_buffers() {
  int borrowers = 0;
  std::int64_t numel = 0;
  for (const int layer : store_.layers()) {
    const ShardPlacement& placement = store_.placement(layer);
    if (!placement.borrows_gradients) continue;
    ++borrowers;
    numel = std::max(numel, placement.shard.size());
  }
  if (borrowers == 0) return;
  const AccountScope account(host_account_);
  host_backend_->make_gradient_buffers(
      std::min(borrowers, plan_.decisions().tiers.gradient_buffers), numel);
}

void Trainer::initialise() {
  constexpr StateKinds kUpdated = StateKind::kWeightShard | StateKind::kOptimizer;
  for (const int layer : layers_) {
    initialise_layer(store_.acquire(layer, kUpdated));
    store_.written(layer, kUpdated, {});
  }
  if (outer_) outer_->restart();
  loaded();
}

// Draws in pieces: a whole layer in fp32, of which each replica keeps a part, could exceed a rank's
// memory.
void Trainer::initialise_layer(const Pin& pin) {
  const LayerLayout& layout = pin.layout();
  const FlatRange shard = pin.placement().shard;
  const MasterWeights master = pin.master();
  // Temporary numbers before the first step, which no plan accounts for.
  const UnchargedScope uncharged;
  const bool in_place = !master.split() && master.weights.is_cpu();
  for (std::size_t i = 0; i < layout.specs.size(); ++i) {
    const WeightPlacement& place = layout.placements[i];
    if (place.borrowed) continue;
    const std::int64_t end = std::min(place.offset + place.numel, shard.end);
    for (std::int64_t begin = std::max(place.offset, shard.begin); begin < end;
         begin += kDrawnElements) {
      const std::int64_t numel = std::min(kDrawnElements, end - begin);
      const MasterWeights part = master.narrow(begin - shard.begin, numel);
      const at::Tensor drawn =
          in_place ? part.weights : at::empty({numel}, host_options(at::kFloat));
      strata::initialise(drawn, layout.specs[i], model_.name(pin.layer()), options_.machine.seed,
                         groups_[Axis::kTensor].rank(), groups_[Axis::kTensor].size(),
                         begin - place.offset);
      if (!in_place) part.assign(drawn);
    }
  }
}

void Trainer::remember_scale() {
  const LossScale scale = machine_->loss_scale();
  float* state = scale_state_.data_ptr<float>();
  state[0] = static_cast<float>(scale.scale);
  state[1] = static_cast<float>(scale.good_steps);
  state[2] = static_cast<float>(scale.skipped);
}

void Trainer::remember_round() {
  const SignRound& round = machine_->sign_round();
  float* state = round_state_.data_ptr<float>();
  state[0] = static_cast<float>(round.updates);
  state[1] = round.size;
  state[2] = round.kept;
}

void Trainer::loaded() {
  bring_weights(/*round=*/true);
  const float* round = round_state_.const_data_ptr<float>();
  machine_->set_sign_round({static_cast<std::int64_t>(round[0]), round[1], round[2]});
  LossScale scale = machine_->loss_scale();
  if (!scale.dynamic) return;
  const float* state = scale_state_.const_data_ptr<float>();
  // A mean over replicas is rounded down to a power of two, so that scaling is exact.
  scale.scale = std::exp2(std::floor(std::log2(static_cast<double>(state[0]))));
  scale.good_steps = static_cast<std::int64_t>(state[1]);
  scale.skipped = static_cast<std::int64_t>(state[2]);
  machine_->set_loss_scale(scale);
}

void Trainer::round_weights() {
  for (const int layer : layers_) {
    if (!store_.placement(layer).rounds_weights()) continue;
    {
      const Pin pin = store_.acquire(layer, StateKind::kWeightShard | StateKind::kOptimizer);
      pin.rounded().copy_(pin.master().weights);
    }
    if (store_.placement(layer).tiers.updates_on_host())
      store_.written(layer, StateKind::kWeightShard, {});
  }
}

// Copies weights to where layers read them. `round`: recomputes 16-bit weights from the fp32 ones.
void Trainer::bring_weights(bool round) {
  if (round) round_weights();
  std::vector<std::pair<Pin, AllGather>> gathers;
  for (const int layer : layers_) {
    const ShardPlacement& placement = store_.placement(layer);
    if (placement.tiers.updates_on_host() || !placement.whole_weights || groups_.shard.size() == 1)
      continue;
    Pin pin = store_.acquire(layer, StateKind::kWeightShard);
    AllGather gather = AllGather::start(groups_.shard, pin.weight_shard(),
                                        cut({0, pin.layout().own_numel}, groups_.shard.size()),
                                        pin.flat_weights());
    gathers.emplace_back(std::move(pin), std::move(gather));
  }
  for (auto& [pin, gather] : gathers) gather.finish();
  gathers.clear();
  for (const int layer : store_.layers()) {
    if (!store_.placement(layer).tiers.updates_on_host()) continue;
    store_.outdate_weights(layer);
    if (plan_.shards()[layer].gathers_weights()) {
      machine_->gather_from_host(layer);
    } else if (store_.placement(layer).whole_weights) {
      store_.prefetch(layer, StateKind::kWeights);
    }
  }
  for (const Action& action : plan_.training(1).programs[groups_[Axis::kPipeline].rank()])
    if (action.op == Op::kSendTiedWeight || action.op == Op::kReceiveTiedWeight)
      machine_->perform(action);
  groups_.world.barrier();  // exported buffers may be written again
}

// The replica's samples; sets the targets that its loss is divided by.
MiniBatch Trainer::own_part(const MiniBatch& batch) {
  const Group& replicas = groups_[Axis::kData];
  const MiniBatch all = padded(batch, replicas.size(), plan_.decisions().micro_batch);
  MiniBatch part = replica_batch(all, replicas.rank(), replicas.size());
  targets_ = {.own = batch.valid_tokens, .all = batch.valid_tokens};
  if (outer_ && replicas.size() > 1) targets_.own = own_targets(all, part);
  return part;
}

void Trainer::run(const MiniBatch& batch, double learning_rate, bool training, bool update,
                  std::vector<at::Tensor>* scores) {
  if (batch.valid_tokens == 0) {
    throw UserError({.operation = "train.step",
                     .what = "no token of the mini-batch counts towards the loss",
                     .expected = "at least one target that isn't ignored",
                     .got = "0 of " + std::to_string(batch.samples) + " samples",
                     .fix = "check the targets of the samples"});
  }
  const int replicas = groups_[Axis::kData].size();
  const std::int64_t samples = plan_.decisions().micro_batch;
  MiniBatch part = own_part(batch);
  part = context_batch(part, model_.split().context, groups_[Axis::kContext].rank());
  if (recorded_->records() || groups_.world.device().kind != DeviceKind::kCpu)
    part = batch_buffers_.place(std::move(part));
  const SampleRange own =
      replica_samples(batch.samples, groups_[Axis::kData].rank(), replicas, samples);
  first_sample_ = own.first;
  samples_ = own.samples;
  std::vector<MicroBatch> micro_batches =
      split(part, samples, count_micro_batches(batch.samples, replicas, samples));
  const int count = static_cast<int>(micro_batches.size());
  const Schedule& schedule = training ? plan_.training(count) : plan_.evaluation(count);
  Program program = schedule.programs[groups_[Axis::kPipeline].rank()];
  if (training && !update) program = without_updates(program);
  recorded_->begin(program, {.micro_batches = std::move(micro_batches),
                             .step = steps_done_,
                             .valid_tokens = targets_.own,
                             .learning_rate = learning_rate,
                             .updates = update,
                             .training = training,
                             .scores = scores});
  execute_located(program, *recorded_, trace_, groups_.world);
  machine_->let_inputs_go();
}

const StepOutcome& Trainer::step(const MiniBatch& batch, double learning_rate) {
  begin_step(batch, learning_rate);
  return end_step();
}

void Trainer::begin_step(const MiniBatch& batch, double learning_rate) {
  use_own_weights();
  run(batch, learning_rate, /*training=*/true, /*update=*/true);
  machine_->end();
  unread_.push_back(targets_);
  ++steps_done_;
  if (outer_ && options_.outer.ends_round(steps_done_)) end_round();
}

const StepOutcome& Trainer::end_step() {
  outcome_ = machine_->take_outcome();
  const Targets targets = unread_.front();
  unread_.pop_front();
  if (outer_)
    outcome_ = outcome_of_replicas(outcome_, targets.own, targets.all, groups_[Axis::kData]);
  return outcome_;
}

const StepOutcome& Trainer::gradient_step(const MiniBatch& batch) {
  use_own_weights();
  run(batch, 0, /*training=*/true, /*update=*/false);
  machine_->end();
  unread_.push_back(targets_);
  return end_step();
}

ReplicaTensor Trainer::input_gradient(const std::string& batch_input) const {
  const int index = model_.batch_input(batch_input);
  STRATA_CHECK(model_.wants_gradient(index), "train.input_gradient");
  const at::Tensor& gradient = machine_->input_gradient(index);
  return {.values = gradient.defined() ? gradient.narrow(0, 0, samples_) : gradient,
          .first_sample = first_sample_};
}

ReplicaScores Trainer::score(const MiniBatch& batch) {
  ReplicaScores scores;
  std::vector<at::Tensor> made;
  use_mean_weights();
  run(batch, 0, /*training=*/false, /*update=*/false, &made);
  scores.loss = loss_of(batch);
  for (const at::Tensor& part : made) {
    const at::Tensor values = part.cpu().contiguous();
    const float* first = values.const_data_ptr<float>();
    scores.values.insert(scores.values.end(), first, first + values.numel());
  }
  if (!scores.values.empty()) scores.values.resize(static_cast<std::size_t>(samples_));
  scores.first_sample = first_sample_;
  return scores;
}

double Trainer::evaluate(const std::vector<MiniBatch>& batches) {
  use_mean_weights();
  double sum = 0, tokens = 0;
  for (const MiniBatch& batch : batches) {
    if (batch.valid_tokens == 0) continue;
    run(batch, 0, /*training=*/false, /*update=*/false);
    sum += loss_of(batch) * static_cast<double>(batch.valid_tokens);
    tokens += static_cast<double>(batch.valid_tokens);
  }
  return sum / tokens;
}

}  // namespace strata
