#include "strata/run/plan_request.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "strata/data/batch.h"
#include "strata/optim/optimizer.h"
#include "strata/plan/ledger/communicator_bytes.h"
#include "strata/plan/search/gpu_costs.h"
#include "strata/run/recipe_machine.h"
#include "strata/task/countable_sizes.h"
#include "strata/transport/peer_memory.h"

namespace strata {
namespace {

int as_int(std::int64_t number) { return static_cast<int>(number); }

// Every rank loads the whole mini-batch; padded parts need a second copy.
std::int64_t loaded_samples(const Recipe& recipe) {
  const TrainOptions& train = recipe.train;
  const int replicas = recipe.mesh.axes[Axis::kData];
  const std::int64_t count = count_micro_batches(train.mini_batch, replicas, train.micro_batch);
  const bool pads = train.mini_batch / replicas < count;
  return train.mini_batch + (pads ? replicas * count : 0);
}

// Counted if a whole device is planned, like the driver's context, not against a rank's own budget.
// Assumes one process per machine if the number is unknown.
std::int64_t communicators_of(const Recipe& recipe, const MachineProfile& machine, int processes) {
  if (machine.device.kind != MachineKind::kCuda || machine.device.context.count == 0) return 0;
  const Mesh& mesh = recipe.mesh.axes;
  const std::int64_t devices = machine.peers.devices;
  if (processes == 1 && devices > 0) processes = as_int((mesh.size() + devices - 1) / devices);
  return communicator_bytes(mesh, recipe.mesh.zero.shard_ranks,
                            {.processes = processes, .devices = devices});
}

Sequential model_of(const Recipe& recipe, TensorSplit split) {
  Sequential model = recipe.task->model(recipe, split);
  // On a CPU the layout of weights is unchanged, so that sums of squares, and losses, keep their
  // bits.
  if (recipe.device_kind() == DeviceKind::kCuda) model.align_weights(kCudaWeightAlignmentBytes);
  return model;
}

}  // namespace

Sequential model_of(const Recipe& recipe) {
  return model_of(recipe, {recipe.mesh.axes[Axis::kTensor], recipe.mesh.sequence_parallel});
}

Sequential whole_model_of(const Recipe& recipe) { return model_of(recipe, {}); }

CostRequest cost_request(const Recipe& recipe, bool keep_intermediates,
                         const MachineProfile& machine) {
  return {.batch_inputs = recipe.task->batch_inputs(recipe.train.micro_batch),
          .samples = (recipe.train.mini_batch + recipe.mesh.axes[Axis::kData] - 1) /
                     recipe.mesh.axes[Axis::kData],
          .loaded_samples = loaded_samples(recipe),
          .micro_batch = recipe.train.micro_batch,
          .optimizer_slots = as_int(
              static_cast<std::int64_t>(make_optimizer(recipe.optimizer)->slot_names().size())),
          .precision = recipe.train.precision,
          .keep_intermediates = keep_intermediates,
          .flops_per_second = flops_of(machine, recipe.train.precision),
          .memory_bytes_per_second = memory_rate_of(machine),
          .counts_passes = machine.device.kind == MachineKind::kCuda};
}

PlanRequest plan_request(const Recipe& recipe, const Sequential& model, const MachineProfile& input,
                         int processes) {
  const TrainOptions& train = recipe.train;
  const MachineProfile machine = with_device_of(recipe, input);
  PlanRequest request{
      .dataflow = model.dataflow(),
      .costs_none = with_gpu_costs(byte_costs(model, cost_request(recipe, true, machine)), machine),
      .costs_cheap =
          with_gpu_costs(byte_costs(model, cost_request(recipe, false, machine)), machine),
      .shape = {.ranks = recipe.mesh.axes[Axis::kPipeline],
                .micro_batches = as_int(count_micro_batches(
                    train.mini_batch, recipe.mesh.axes[Axis::kData], train.micro_batch)),
                .virtual_stages = as_int(recipe.mesh.virtual_stages)},
      .schedule = recipe.mesh.schedule,
      .memory = recipe.memory,
      .micro_batch = train.micro_batch,
      .mesh = mesh_request(recipe.mesh),
      .sample_tokens = recipe.task->sample_tokens(),
      .updates_at_once = train.clip == 0 && train.precision != at::kHalf,
      .machine = machine,
      .updates_measured = false,
      .recording = train.graph == GraphMode::kOff  ? RecordingPlan::kNever
                   : train.graph == GraphMode::kOn ? RecordingPlan::kAlways
                                                   : RecordingPlan::kIfItFits,
      .validation_shapes = recipe.task->evaluation_shapes(recipe)};
  request.costs_none.communicator_bytes = request.costs_cheap.communicator_bytes =
      communicators_of(recipe, machine, processes);
  request.costs_none.rows = request.costs_cheap.rows = recipe.task->rows_cost(recipe, machine);
  check_bytes(request.costs_none);
  if (processes > 1) {
    request.mesh.rates = kProcessRates;
    // Processes of one machine read each other's memory unless STRATA_SOCKETS forbids it.
    request.mesh.reads_in_place = !sockets_only();
  }
  request.mesh.rates = gpu_axis_rates(machine, recipe.mesh.axes, request.mesh.rates);
  return request;
}

PlanRequest with_convention(PlanRequest request, const ParameterBytes* bytes) {
  if (bytes == nullptr) return request;
  request.costs_none = with_parameter_bytes(std::move(request.costs_none), *bytes);
  request.costs_cheap = with_parameter_bytes(std::move(request.costs_cheap), *bytes);
  return request;
}

}  // namespace strata
