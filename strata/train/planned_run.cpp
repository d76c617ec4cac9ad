// A recipe is planned with estimated seconds before anything is measured, so that what cannot fit is
// refused before a probe allocates. Sizes are checked as floating point before they are multiplied.
#include "strata/train/planned_run.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <thread>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/pipeline/byte_costs.h"
#include "strata/pipeline/probe.h"
#include "strata/pipeline/probe_cache.h"
#include "strata/pipeline/processor.h"
#include "strata/plan/communicator_bytes.h"
#include "strata/plan/gpu_costs.h"
#include "strata/report/progress.h"
#include "strata/train/rows_cost.h"
#include "strata/train/trained_model.h"

namespace strata {
namespace {

int as_int(std::int64_t number) { return static_cast<int>(number); }

// Products that plans and layers make of these stay far below 2^63, their factors of bytes and of
// what layers make inside included.
constexpr double kMostElements = 0x1p50;  // of a tensor
constexpr double kMostBytes = 0x1p60;     // of a model and its activations

void require_countable(double count, double most, const std::string& where, const std::string& what,
                       const std::string& unit, const std::string& fix) {
  if (count <= most) return;
  throw UserError({.operation = "train.plan",
                   .where = where,
                   .what = what,
                   .expected = "at most " + format_count(most) + unit,
                   .got = format_count(count) + unit,
                   .fix = fix});
}

// Refuses sizes of which a tensor could not be counted, before anything multiplies them.
void check_elements(const Recipe& recipe) {
  const DecoderOptions& model = recipe.model;
  const auto number = [](std::int64_t size) { return static_cast<double>(size); };
  const double heads = number(std::max(model.heads, model.kv_heads));
  const double inside = std::max({4 * number(model.width), number(model.mlp_width),
                                  3 * heads * number(std::max<std::int64_t>(1, model.head_width)),
                                  number(model.vocab)});
  require_countable(inside * std::max(number(model.width), 1.0), kMostElements, "model",
                    "a weight has more elements than can be counted", " elements",
                    "set model.width or model.vocab to a smaller number");
  const double rows = number(recipe.train.micro_batch) * number(model.context);
  require_countable(rows * inside, kMostElements, "train.micro_batch",
                    "a micro-batch has more elements than can be counted", " elements",
                    "set train.micro_batch or model.context to a smaller number");
}

void check_bytes(const CostTable& costs) {
  double bytes = static_cast<double>(costs.batch_bytes);
  const auto micro_batches =
      static_cast<double>(std::max<std::size_t>(1, costs.micro_batch_scale.size()));
  const auto add = [&](std::int64_t some, double times) {
    bytes += std::abs(static_cast<double>(some)) * times;
  };
  for (const LayerCost& layer : costs.layers) {
    for (const std::int64_t some :
         {layer.weight_bytes, layer.gradient_bytes, layer.state_bytes, layer.replica_bytes,
          layer.forward_transient_bytes, layer.backward_transient_bytes})
      add(some, 1);
    add(layer.saved_bytes, micro_batches);
  }
  for (const ValueCost& value : costs.values) add(value.bytes, 2 * micro_batches);
  require_countable(bytes, kMostBytes, "model", "the model has more bytes than can be counted", "B",
                    "set model.layers, model.width or train.mini_batch to a smaller number");
}

double known(double rate, double otherwise) { return rate > 0 ? rate : otherwise; }

double flops_of(const MachineProfile& machine, at::ScalarType precision) {
  const double flops = precision == at::kFloat      ? machine.device.fp32
                       : precision == at::kBFloat16 ? machine.device.bf16
                                                    : machine.device.fp16;
  return known(flops, kAssumedFlopsPerSecond);
}

// Every rank loads the whole mini-batch; where its parts have to be padded, there is a second one beside it.
std::int64_t loaded_samples(const Recipe& recipe) {
  const TrainOptions& train = recipe.train;
  const std::int64_t replicas = recipe.mesh.dp;
  const std::int64_t count =
      count_micro_batches(train.mini_batch, as_int(replicas), train.micro_batch);
  const bool pads = train.mini_batch / replicas < count;
  return train.mini_batch + (pads ? replicas * count : 0);
}

CostRequest cost_request(const Recipe& recipe, bool keep_intermediates,
                         const MachineProfile& machine) {
  return {.batch_inputs = batch_specs(recipe, recipe.train.micro_batch),
          .samples = (recipe.train.mini_batch + recipe.mesh.dp - 1) / recipe.mesh.dp,
          .loaded_samples = loaded_samples(recipe),
          .micro_batch = recipe.train.micro_batch,
          .optimizer_slots = as_int(
              static_cast<std::int64_t>(make_optimizer(recipe.optimizer)->slot_names().size())),
          .precision = recipe.train.precision,
          .keep_intermediates = keep_intermediates,
          .flops_per_second = flops_of(machine, recipe.train.precision),
          .memory_bytes_per_second =
              known(static_cast<double>(machine.device.bandwidth.count), kAssumedMemoryRate),
          .counts_passes = machine.device.kind == MachineKind::kCuda};
}

Sequential model_of(const Recipe& recipe) {
  if (!recipe.recommender) check_elements(recipe);
  return training_model(recipe, {as_int(recipe.mesh.tp), recipe.mesh.sequence_parallel});
}

// What a rank's attention computes at a time. In fp32 it is another algorithm, without workspaces.
AttentionShape attention_of(const Recipe& recipe) {
  if (recipe.recommender || recipe.train.precision == at::kFloat) return {};
  const DecoderOptions& model = recipe.model;
  return {.samples = recipe.train.micro_batch,
          .heads = std::max<std::int64_t>(1, model.heads / recipe.mesh.tp),
          .tokens = model.context,
          .head_width = model.head_width > 0 ? model.head_width : model.width / model.heads,
          .shares_keys = model.kv_heads > 0 && model.kv_heads < model.heads};
}

// A profile of a machine with a GPU says of its device what is a GPU's, and the other way round.
MachineProfile with_device_of(const Recipe& recipe, MachineProfile machine) {
  const MachineKind kind =
      recipe.device_kind() == DeviceKind::kCuda ? MachineKind::kCuda : MachineKind::kCpu;
  if (machine.device.kind == MachineKind::kCuda && kind == MachineKind::kCpu)
    machine.device = {}, machine.link = {}, machine.peers = {};
  machine.device.kind = kind;
  // A budget that leaves the driver its room is of the rank's own tensors, as accounts charge them.
  if (recipe.memory.device.count + machine.device.context.count <= machine.device.bytes.count)
    machine.device.context = {};
  return machine;
}

// Counted where a whole device is planned, as is the driver's context, and not of a rank's own budget. Where nobody says how many, there is a process
// a machine.
std::int64_t communicators_of(const Recipe& recipe, const MachineProfile& machine, int processes) {
  if (machine.device.kind != MachineKind::kCuda || machine.device.context.count == 0) return 0;
  const Mesh mesh = recipe.mesh.mesh();
  const std::int64_t devices = machine.peers.devices;
  if (processes == 1 && devices > 0) processes = as_int((mesh.size() + devices - 1) / devices);
  return communicator_bytes(mesh, as_int(recipe.mesh.shard_ranks),
                            {.processes = processes, .devices = devices});
}

// Mini-batches are evaluated whole, but for the last one. Without a number of samples both are expected.
int validation_shapes(const Recipe& recipe) {
  if (recipe.recommender) return 0;  // scores go to the host one by one
  const bool validates = !recipe.data.validation.empty() || recipe.data.validation_fraction > 0;
  const std::int64_t samples = recipe.train.validation_samples, whole = recipe.train.mini_batch;
  if (!validates) return 0;
  return samples == 0 ? 2 : (samples >= whole ? 1 : 0) + (samples % whole > 0 ? 1 : 0);
}

// Ranks that share a GPU are performed: they would record one another.
bool shares_device(const Recipe& recipe, int processes) {
  const int ranks = (recipe.mesh.mesh().size() + processes - 1) / processes;
  const int devices = recipe.device_kind() == DeviceKind::kCuda ? cuda_backend().count() : 0;
  return devices > 0 && ranks > devices;
}

PlanRequest plan_request(const Recipe& recipe, const Sequential& model, const MachineProfile& given,
                         int processes = 1) {
  const TrainOptions& train = recipe.train;
  const MachineProfile machine = with_device_of(recipe, given);
  PlanRequest request{
      .dataflow = model.dataflow(),
      .costs_none = with_gpu_costs(byte_costs(model, cost_request(recipe, true, machine)), machine,
                                   attention_of(recipe)),
      .costs_cheap = with_gpu_costs(byte_costs(model, cost_request(recipe, false, machine)),
                                    machine, attention_of(recipe)),
      .shape = {.ranks = as_int(recipe.mesh.pp),
                .micro_batches = as_int(count_micro_batches(
                    train.mini_batch, as_int(recipe.mesh.dp), train.micro_batch)),
                .virtual_stages = as_int(recipe.mesh.virtual_stages)},
      .schedule = recipe.mesh.schedule,
      .memory = recipe.memory,
      .micro_batch = train.micro_batch,
      .mesh = mesh_request(recipe.mesh),
      .sample_tokens = sample_tokens(recipe),
      .updates_at_once = train.clip == 0 && train.precision != at::kHalf,
      .machine = machine,
      .updates_measured = false,
      .recording = train.graph == GraphMode::kOff  ? RecordingPlan::kNever
                   : train.graph == GraphMode::kOn ? RecordingPlan::kAlways
                                                   : RecordingPlan::kIfItFits,
      .validation_shapes = validation_shapes(recipe)};
  request.costs_none.communicator_bytes = request.costs_cheap.communicator_bytes =
      communicators_of(recipe, machine, processes);
  if (recipe.recommender)
    request.costs_none.rows = request.costs_cheap.rows = estimated_rows(recipe, machine);
  check_bytes(request.costs_none);
  if (processes > 1) {
    request.mesh.rates = kProcessRates;
    // Processes of one machine read each other's memory unless they are told not to.
    request.mesh.reads_in_place = std::getenv("STRATA_SOCKETS") == nullptr;
  }
  request.mesh.rates = gpu_axis_rates(machine, recipe.mesh.mesh(), request.mesh.rates);
  request.mesh.tensor = transformer_traffic(request.dataflow, request.costs_cheap, request.mesh);
  return request;
}

PlanRequest with_convention(PlanRequest request, const ParameterBytes* bytes) {
  if (bytes == nullptr) return request;
  request.costs_none = with_parameter_bytes(std::move(request.costs_none), *bytes);
  request.costs_cheap = with_parameter_bytes(std::move(request.costs_cheap), *bytes);
  return request;
}

// With mesh.auto, the mesh that the search finds; estimates alone, so the same in every process.
Recipe with_mesh(Recipe recipe, const MachineProfile& machine = {}) {
  if (!recipe.mesh.automatic) return recipe;
  recipe.mesh = search_mesh(recipe, machine).best();
  recipe.mesh.automatic = false;
  return recipe;
}

PlannedRun unplanned_run(const Recipe& recipe) {
  return {.model = model_of(recipe),
          .mesh = recipe.mesh,
          .ranks = recipe.mesh.mesh().size(),
          .threads_per_rank = recipe.threads_per_rank()};
}

// More than this would be started on one machine only to wait for one another.
constexpr int kMostThreadsHere = 1024;

void check_threads(const Recipe& recipe) {
  const int processes = std::max(1, rendezvous_from_environment().processes);
  const int ranks = (recipe.mesh.mesh().size() + processes - 1) / processes;
  const std::int64_t threads = std::int64_t{ranks} * recipe.threads_per_rank();
  if (threads <= kMostThreadsHere) return;
  throw UserError({.operation = "train.plan",
                   .where = "mesh",
                   .what = "a process would start too many threads",
                   .expected = "at most " + std::to_string(kMostThreadsHere),
                   .got = std::to_string(ranks) + " ranks of " +
                          std::to_string(recipe.threads_per_rank()) + " threads",
                   .fix = "start more processes, or set mesh.threads or an axis of the mesh to a "
                          "smaller number"});
}

}  // namespace

MeshSearch search_mesh(const Recipe& recipe, const MachineProfile& machine) {
  MeshOptions asked = recipe.mesh;
  if (asked.ranks == 0 && asked.mesh().size() == 1) {
    // `mesh: auto` alone: a rank for each process, or for each GPU of the machine, or each core of this one.
    const int processes = rendezvous_from_environment().processes;
    const int gpus = recipe.device_kind() == DeviceKind::kCuda ? cuda_backend().count() : 0;
    const std::int64_t devices = machine.device.kind == MachineKind::kCuda ? machine.peers.devices
                                 : gpus > 0                                ? gpus
                                            : std::thread::hardware_concurrency();
    asked.ranks = processes > 1 ? processes : std::max<std::int64_t>(1, devices);
  }
  return search_mesh(asked, mesh_limits(recipe), [&](const MeshOptions& mesh) {
    Recipe candidate = recipe;
    candidate.mesh = mesh;
    return plan_request(candidate, model_of(candidate), machine);
  });
}

MachineProfile this_machine(const Recipe& recipe) {
  return load_profile(
      default_rates_file(), ProcessorIdentity::of_this_machine(),
      recipe.device_kind() == DeviceKind::kCuda ? MachineKind::kCuda : MachineKind::kCpu);
}

Recipe on_machine(Recipe recipe, const MachineProfile& machine) {
  if (recipe.device == DeviceChoice::kAuto && machine.device.kind == MachineKind::kCuda)
    recipe.device = DeviceChoice::kCuda;
  const auto open = [](Bytes& budget, Bytes has) {
    if (budget.count == 0) budget = has;
  };
  open(recipe.memory.device, machine.device.bytes);
  open(recipe.memory.host, machine.host.bytes);
  open(recipe.memory.disk.bytes, machine.disk.bytes);
  if (recipe.memory.disk.path.empty() && machine.disk.bytes.count > 0)
    recipe.memory.disk.path = "the machine's disk";  // nothing is opened there
  return recipe;
}

namespace {

// By layer, whatever slice of it a rank has; tied weights are their owner's.
std::vector<double> parameters_of(const Sequential& model) {
  std::vector<double> parameters(model.num_layers());
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const LayerLayout& layout = model.layout(layer);
    for (std::size_t i = 0; i < layout.specs.size(); ++i) {
      if (layout.placements[i].borrowed) continue;
      double numel = 1;
      for (const std::int64_t size : layout.specs[i].shape) numel *= static_cast<double>(size);
      parameters[layer] += numel;
    }
  }
  return parameters;
}

}  // namespace

std::vector<TierDepth> largest_depths(const Recipe& recipe, const MachineProfile& machine,
                                      const ParameterBytes* convention) {
  const Sequential model = model_of(recipe);
  return largest_depths(with_convention(plan_request(recipe, model, machine), convention),
                        parameters_of(model));
}

std::string estimate_text(const Recipe& recipe, const MachineProfile& machine) {
  const bool gpu = recipe.device_kind() == DeviceKind::kCuda;
  const double rate = flops_of(with_device_of(recipe, machine), recipe.train.precision);
  const std::string text = "seconds    from " + format_count(rate) + "FLOP/s of " +
                           precision_name(recipe.train.precision) + " products, ";
  const bool known = with_device_of(recipe, machine).device.fp32 > 0;
  if (known) return text + "as strata doctor has measured here\n";
  return text + (gpu ? "assumed, not a GPU's: --machine h100 plans by published rates\n"
                     : "assumed: strata doctor measures this machine's\n");
}

SharedHost shared_host(const PlannedRun& run, int processes) {
  const DeviceFacts here = cpu_backend().facts(0);
  return {.ranks = (run.ranks + processes - 1) / processes,
          .threads_per_rank = run.threads_per_rank,
          .cores = std::max(1, here.multiprocessors),
          .bytes = here.bytes};
}

namespace {

// As many updates as rows may lack.
int gradient_delay(const Recipe& recipe) {
  if (!recipe.recommender || recipe.recommender->embedding.mode != EmbeddingMode::kAsynchronous)
    return 0;
  return as_int(recipe.recommender->embedding.rows.staleness) - 1;
}

// Who looks at a terminal wonders what takes so long.
std::function<void(const std::string&)> tell_on_terminal() {
  if (!progress_to_stderr(0, 0).terminal) return {};
  return [](const std::string& layers) { std::cerr << "measuring  " << layers << std::endl; };
}

}  // namespace

TrainerOptions trainer_options(const Recipe& recipe) {
  return {.machine = {.seed = static_cast<std::uint64_t>(recipe.train.seed),
                      .clip = recipe.train.clip,
                      .label_smoothing = recipe.train.label_smoothing,
                      .gradient_delay = gradient_delay(recipe)},
          .precision = recipe.train.precision,
          .optimizer = recipe.optimizer,
          .host_bytes = recipe.memory.host.count,
          .link = {.bytes_per_second = static_cast<double>(recipe.memory.link.bandwidth.count),
                   .latency_seconds = recipe.memory.link.latency},
          .graph = {.mode = recipe.train.graph},
          .disk = {
              .path = recipe.memory.disk.path,
              .bytes = recipe.memory.disk.bytes.count,
              .file = {.setting = "memory.disk.path", .file = {.backend = recipe.memory.disk.io}}}};
}

PlannedRun plan_run(const Recipe& given, bool probe, int processes, const LogData* data) {
  if (probe) given.rank_device();  // nothing is measured on another
  const Recipe recipe = with_mesh(given);
  PlannedRun run = unplanned_run(recipe);
  PlanRequest request = plan_request(recipe, run.model, this_machine(recipe), processes);
  request.update_threads = run.threads_per_rank;
  if (request.recording == RecordingPlan::kIfItFits && shares_device(recipe, processes))
    request.recording = RecordingPlan::kNever;
  const bool on_cores = recipe.device_kind() == DeviceKind::kCpu;
  const SharedHost host = shared_host(run, processes);
  const auto share = [&](CostTable& costs) {
    if (on_cores) share_cores(costs, host);
  };
  share(request.costs_none), share(request.costs_cheap);
  // With estimated seconds first: what doesn't fit is refused before a probe allocates anything.
  run.plan = make_plan(request);
  if (!probe) return run;
  // Ranks that wait for a core would have the wait measured or not, as the system happens to switch threads: it is
  // reckoned, and what training then measures is not the layers' own.
  const ProbeOptions options{.ranks = on_cores ? ranks_side_by_side(host) : run.ranks,
                             .threads_per_rank = run.threads_per_rank,
                             .optimizer = recipe.optimizer.kind,
                             .cache_file = default_probe_cache(),
                             .tell = tell_on_terminal()};
  const bool keep = recipe.memory.recompute == RecomputeMode::kNone;
  CostRequest costs = cost_request(recipe, keep, request.machine);
  costs.device = recipe.rank_device();
  CostTable& probed = keep ? request.costs_none : request.costs_cheap;
  probe_seconds(probed, run.model, costs, options);
  share(probed);
  if (recipe.recommender)
    request.costs_none.rows = request.costs_cheap.rows =
        probed_rows(recipe, request.machine, default_cache_file("rows.json"), data);
  request.updates_measured =
      recipe.rank_device().kind == DeviceKind::kCpu;  // else it was the device's
  run.plan = make_plan(request);
  if (!on_cores || threads_per_core(host) <= 1) run.probe_cache = options.cache_file;
  run.probe_keys = probe_keys(run.model, costs, options);
  return run;
}

PlannedRun plan_run(const Recipe& given, const MachineProfile& machine,
                    const ParameterBytes* convention) {
  const Recipe recipe = with_mesh(given, machine);
  PlannedRun run = unplanned_run(recipe);
  run.plan = make_plan(with_convention(plan_request(recipe, run.model, machine), convention));
  return run;
}

std::string precision_advice(const Recipe& recipe, bool measure) {
  if (recipe.device == DeviceChoice::kCuda) return "";
  const ProcessorIdentity processor = ProcessorIdentity::of_this_machine();
  std::optional<PrecisionRates> rates = load_rates(default_rates_file(), processor);
  // fp32 is what other precisions are compared with: it needs no measurement to be advised.
  if (!rates && measure && recipe.train.precision != at::kFloat) {
    rates = measure_precision_rates(processor.cores);
    save_rates(default_rates_file(), processor, *rates);
  }
  if (!rates) return "";
  const std::string slow = slow_precision_text(recipe.train.precision, *rates);
  return slow.empty() ? precision_name(recipe.train.precision) + "; this processor is fast in " +
                            fastest_text(*rates)
                      : slow;
}

RanksOptions ranks_options(const Recipe& given) {
  const Recipe recipe = with_mesh(given);
  check_threads(recipe);
  return {.ranks = recipe.mesh.mesh().size(),
          .threads_per_rank = recipe.threads_per_rank(),
          .device_bytes = recipe.memory.device.count,
          .device = recipe.rank_device(),
          .mesh = recipe.mesh.mesh(),
          .fingerprint = given.text,
          .stall_seconds = recipe.mesh.stall_seconds,
          .stall_fatal_seconds = recipe.mesh.stall_fatal_seconds,
          .transport = recipe.mesh.transport,
          .reduction = recipe.mesh.reduction};
}

World join_world(const Recipe& recipe) { return World(ranks_options(recipe)); }

PlannedRun plan_run(World& world, const Recipe& given, const std::string& follow,
                    const LogData* data) {
  std::optional<PlannedRun> run;
  const std::string decided = world.agree([&] {
    if (!follow.empty()) return follow;
    run = plan_run(given, /*probe=*/true, world.processes(), data);
    return decisions_text(run->plan);
  });
  if (run) return std::move(*run);
  const Recipe recipe = with_mesh(given);
  run = unplanned_run(recipe);
  run->plan = follow_plan(plan_request(recipe, run->model, {}, world.processes()), decided);
  return std::move(*run);
}

}  // namespace strata
