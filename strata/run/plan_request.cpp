#include "strata/run/plan_request.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/data/batch.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/optimizer.h"
#include "strata/optim/zero_one_intervals.h"
#include "strata/plan/search/gpu_costs.h"
#include "strata/plan/search/shared_devices.h"
#include "strata/run/recipe_machine.h"
#include "strata/run/sign_check.h"
#include "strata/schedule/order_csv.h"
#include "strata/task/countable_sizes.h"
#include "strata/transport/peer_memory.h"

namespace strata {
namespace {

int as_int(std::int64_t number) { return static_cast<int>(number); }

// The number of micro-batches of one replica.
std::int64_t micro_batches_of(const Recipe& recipe) {
  return count_micro_batches(recipe.train.mini_batch, recipe.mesh.axes[Axis::kData],
                             recipe.train.micro_batch);
}

// Ranks of one process that share a GPU do not record steps, because they would record each other's
// work.
RecordingPlan recording_of(GraphMode mode, const RankDevices& devices) {
  if (mode == GraphMode::kOn) return RecordingPlan::kAlways;
  return mode == GraphMode::kOff || devices.shared ? RecordingPlan::kNever
                                                   : RecordingPlan::kIfItFits;
}

constexpr std::uint64_t kMostOrderBytes = 64 << 20;

// Ranks that share one set of shards are adjacent, and may be in one process while the groups are
// not: the former are the replicas of a mesh with more stages, the latter those of a mesh whose
// slices are the ranks of a group.
void add_group_links(MeshRequest& request, const LinkLimit& link, int processes) {
  const int ranks = request.axes.weight_ranks(), shards = request.zero.shards(ranks);
  if (shards == 1 || shards == ranks) return;
  const auto speed_of = [&](const Mesh& mesh) {
    return LinkSpeed{link_rates(link, mesh, processes)[Axis::kData],
                     link_latency(link, mesh, processes)[Axis::kData]};
  };
  Mesh group = request.axes, same_shard = request.axes;
  group[Axis::kContext] = same_shard[Axis::kContext] = 1;
  group[Axis::kData] = shards;
  group[Axis::kPipeline] *= ranks / shards;
  same_shard[Axis::kData] = ranks / shards;
  same_shard[Axis::kTensor] *= shards;
  request.shard_link = speed_of(group);
  request.replica_link = speed_of(same_shard);
}

// What ranks keep and wait for because there are several of them.
void add_ranks(PlanRequest& request, const Recipe& recipe, int processes,
               const RankDevices& devices) {
  const Mesh& mesh = request.mesh.axes;
  if (processes > 1) {
    request.mesh.rates = kProcessRates;
    // Processes of one machine read each other's memory unless STRATA_SOCKETS forbids it.
    request.mesh.reads_in_place = !sockets_only();
  }
  if (const LinkLimit link = recipe.mesh.link(); link.is_set()) {
    // A plan without processes assumes one for each rank; a run without them is refused.
    const int joined = processes > 1 ? processes : mesh.size();
    request.mesh.rates = link_rates(link, mesh, joined);
    request.mesh.latency = link_latency(link, mesh, joined);
    request.mesh.reads_in_place = joined == 1;
    add_group_links(request.mesh, link, joined);
    // An outer step goes to the same ranks of other replicas only.
    if (request.mesh.outer_every > 0) {
      Mesh replicas = mesh;
      replicas[Axis::kTensor] *= std::exchange(replicas[Axis::kContext], 1);
      request.mesh.rates[Axis::kData] = link_rates(link, replicas, joined)[Axis::kData];
    }
  }
  request.mesh.rates = gpu_axis_rates(request.machine, mesh, request.mesh.rates);
  const SharedDevices shared = shared_devices(mesh, devices.of_rank, devices.bytes);
  for (CostTable& costs : request.costs) costs.devices = shared;
  // Counted if a whole device is planned, like the driver's context, not against a rank's own
  // budget. Assumes one process per machine if the number is unknown.
  const MachineProfile& machine = request.machine;
  if (machine.device.kind != MachineKind::kCuda || machine.device.context.count == 0) return;
  const std::int64_t here = machine.peers.devices;
  if (processes == 1 && here > 0) processes = as_int((mesh.size() + here - 1) / here);
  const std::int64_t bytes = communicator_bytes(mesh, recipe.mesh.zero.shard_ranks,
                                                {.processes = processes, .devices = here});
  for (CostTable& costs : request.costs) costs.communicator_bytes = bytes;
}

// Most steps of a run whose replicas send signs are after its freeze step, and the last are
// planned.
bool sends_signs(const Recipe& recipe) {
  const int ranks = recipe.mesh.axes.weight_ranks();
  return moves_by_signs(recipe.optimizer.kind) && recipe.mesh.zero.shards(ranks) < ranks;
}

MeshRequest mesh_of(const Recipe& recipe) {
  MeshRequest mesh = mesh_request(recipe.mesh);
  mesh.trust_ratios = make_optimizer(recipe.optimizer)->has_trust_ratios();
  mesh.sends_signs = sends_signs(recipe);
  if (recipe.optimizer.kind == OptimizerKind::kZeroOneAdam)
    mesh.signs_per_step = synchronisations_per_step(recipe.optimizer, recipe.train.steps);
  mesh.outer_every = recipe.outer.every;
  return mesh;
}

// Without a choice of the user, states stay where the optimizer can move them.
MemoryOptions memory_of(const Recipe& recipe) {
  MemoryOptions memory = recipe.memory;
  if (!updates_on_device_alone(recipe)) return memory;
  const auto is_open = [](TierChoice choice) {
    return choice == TierChoice::kAuto || choice == TierChoice::kDevice;
  };
  if (is_open(memory.weights) && is_open(memory.gradients) && is_open(memory.states))
    memory.weights = memory.gradients = memory.states = TierChoice::kDevice;
  return memory;
}

bool has_level(const Sequential& model, Recompute level) {
  for (int layer = 0; layer < model.num_layers(); ++layer)
    if (model.layer(layer).deepest_recompute() >= level) return true;
  return false;
}

Sequential model_of(const Recipe& recipe, TensorSplit split) {
  Sequential model = recipe.task->model(recipe, split);
  // On a CPU the layout of weights is unchanged, so that sums of squares, and losses, keep their
  // bits.
  if (recipe.device_kind() == DeviceKind::kCuda) model.align_weights(kCudaWeightAlignmentBytes);
  return model;
}

}  // namespace

bool updates_on_device_alone(const Recipe& recipe) {
  const auto optimizer = make_optimizer(recipe.optimizer);
  return optimizer->orthogonalises() || optimizer->has_trust_ratios() ||
         moves_by_signs(recipe.optimizer.kind) || recipe.outer.is_on();
}

std::shared_ptr<const Schedule> read_order_of(const MeshOptions& mesh) {
  if (mesh.schedule != ScheduleKind::kFile) return nullptr;
  const FileUse use{.operation = "schedule.read",
                    .fix = "set mesh.schedule_file to a CSV file of an order"};
  Schedule order =
      read_order(read_file(mesh.schedule_file, use, kMostOrderBytes), mesh.schedule_file);
  const auto check = [&](std::int64_t got, std::int64_t expected, const std::string& what,
                         const std::string& fix) {
    if (got == expected) return;
    throw UserError({.operation = "schedule.read",
                     .where = mesh.schedule_file,
                     .what = "the order is for another number of " + what,
                     .expected = std::to_string(expected),
                     .got = std::to_string(got),
                     .fix = fix});
  };
  const std::int64_t ranks = mesh.axes[Axis::kPipeline];
  check(order.num_ranks(), ranks, "ranks", "set mesh.pp=" + std::to_string(order.programs.size()));
  for (int rank = 0; rank < order.num_ranks(); ++rank)
    check(std::ranges::count(order.rank_of_stage, rank), mesh.stages_per_rank(),
          "stages on line " + std::to_string(rank + 1),
          "set mesh.virtual_stages to the stages of every rank");
  require_legal(order);
  return std::make_shared<const Schedule>(std::move(order));
}

Sequential model_of(const Recipe& recipe) {
  return model_of(recipe, {.ranks = recipe.mesh.axes[Axis::kTensor],
                           .sequence = recipe.mesh.sequence_parallel,
                           .context = recipe.mesh.context_split()});
}

Sequential whole_model_of(const Recipe& recipe) { return model_of(recipe, {}); }

CostRequest cost_request(const Recipe& recipe, const MachineProfile& machine) {
  const TrainOptions& train = recipe.train;
  const std::int64_t replicas = recipe.mesh.axes[Axis::kData];
  const std::int64_t count = micro_batches_of(recipe);
  // Every rank loads the whole mini-batch; padded parts, and parts of samples, need a second copy.
  const bool pads = train.mini_batch / replicas < count;
  const std::int64_t parts = recipe.mesh.axes[Axis::kContext];
  const std::int64_t samples = (train.mini_batch + replicas - 1) / replicas;
  const auto optimizer = make_optimizer(recipe.optimizer);
  std::vector<TensorSpec> inputs = recipe.task->batch_inputs(train.micro_batch);
  if (parts > 1)
    for (TensorSpec& input : inputs) input.shape[1] /= parts;
  return {.batch_inputs = std::move(inputs),
          .samples = samples,
          .loaded_samples = parts * (train.mini_batch + (pads ? replicas * count : 0)) +
                            (parts > 1 ? samples : 0),
          .micro_batch = train.micro_batch,
          .optimizer_slots = as_int(static_cast<std::int64_t>(optimizer->slot_names().size())),
          .orthogonalises = optimizer->orthogonalises(),
          .trust_ratios = optimizer->has_trust_ratios(),
          .sends_signs = sends_signs(recipe),
          .outer = {.states = as_int(std::ssize(outer_states(recipe.outer))),
                    .every = recipe.outer.every,
                    .replicas = as_int(replicas)},
          .precision = train.precision,
          .recompute = level_of(recipe.memory.recompute),
          .halves = traits_of(recipe.mesh.schedule).halves && recipe.mesh.axes[Axis::kPipeline] > 1,
          .flops_per_second = flops_of(machine, train.precision),
          .memory_bytes_per_second = memory_rate_of(machine),
          .counts_passes = machine.device.kind == MachineKind::kCuda};
}

PlanRequest plan_request(const Recipe& recipe, const Sequential& model,
                         const MachineProfile& machine, int processes, const RankDevices& devices) {
  check_signs(recipe, std::identity());  // mesh.auto compares meshes that no recipe had
  const TrainOptions& train = recipe.train;
  PlanRequest request{.dataflow = model.dataflow(),
                      .micro_batches = as_int(micro_batches_of(recipe)),
                      .virtual_stages = as_int(recipe.mesh.stages_per_rank()),
                      .schedule = recipe.mesh.schedule,
                      .order = read_order_of(recipe.mesh),
                      .memory = memory_of(recipe),
                      .states_on_device = updates_on_device_alone(recipe),
                      .micro_batch = train.micro_batch,
                      .mesh = mesh_of(recipe),
                      .sample_tokens = recipe.task->sample_tokens(),
                      .updates_at_once = train.clip == 0 && train.precision != at::kHalf,
                      .machine = machine,
                      .updates_measured = false,
                      .recording = recording_of(train.graph, devices),
                      .validation_shapes = recipe.task->evaluation_shapes(recipe)};
  CostRequest layers = cost_request(recipe, machine);
  const RowsCost rows = recipe.task->rows_cost(recipe, machine);
  for (const Recompute level : kRecomputeLevels) {
    layers.recompute = level;
    request.costs[level] = level > Recompute::kCheap && !has_level(model, level)
                               ? request.costs[Recompute::kCheap]
                               : with_gpu_costs(byte_costs(model, layers), machine);
    request.costs[level].rows = rows;
  }
  add_ranks(request, recipe, processes, devices);
  check_bytes(request.costs[Recompute::kNone]);  // the most that layers save
  return request;
}

PlanRequest with_convention(PlanRequest request, const ParameterBytes* bytes) {
  if (bytes == nullptr) return request;
  for (CostTable& costs : request.costs) costs = with_parameter_bytes(std::move(costs), *bytes);
  return request;
}

}  // namespace strata
