#include "strata/claim/mesh_estimate.h"

#include <algorithm>
#include <map>
#include <optional>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/plan/search/gpu_costs.h"
#include "strata/plan/search/mesh_check.h"
#include "strata/plan/search/proposal.h"
#include "strata/plan/search/stage_estimate.h"

namespace strata {
namespace {

constexpr ErrorSource kMeshErrors{"claim.mesh"};

constexpr std::int64_t kLargestMicroBatch = 16;  // samples
constexpr int kMostVirtualStages = 8;
// The most candidates that are planned; fewer of those whose programs are long, which take seconds
// together.
constexpr int kPlans = 12;
constexpr std::int64_t kPlannedLayers = 1'500'000;  // times micro-batches
// A mesh has to be faster by this factor to replace a simpler one.
constexpr double kNoFaster = 1e-3;

MeshRequest request_of(const DecoderTraining& training, const DecoderMesh& mesh) {
  return {
      .axes = mesh.axes,
      .zero = {.stage = mesh.axes.weight_ranks() > 1 ? mesh.zero : 0, .reduce = ReduceMode::kOnce},
      .sequence_parallel = mesh.sequence_parallel,
      .rates = gpu_axis_rates(training.machine, mesh.axes, kThreadRates)};
}

DecoderModel model_of(const DecoderTraining& training, const DecoderMesh& mesh) {
  const int slices = mesh.axes[Axis::kTensor];
  DecoderModel model = decoder_model(training.shape,
                                     {.split = {.samples = mesh.micro_batch,
                                                .tensor_ranks = slices,
                                                .sequence_parallel = mesh.sequence_parallel},
                                      .kernels = training.kernels,
                                      .recompute = mesh.recompute},
                                     precision_convention(training.convention), training.machine);
  if (!training.scatters_messages || mesh.sequence_parallel) return model;
  const AxisRates rates = request_of(training, mesh).rates;
  for (ValueCost& value : model.costs.values) {
    const double part = static_cast<double>(value.bytes) / slices;
    value.transfer_seconds =
        part / rates[Axis::kPipeline] + (slices - 1) * part / rates[Axis::kTensor];
  }
  return model;
}

LayerSet recomputed_layers(const DecoderMesh& mesh, const CostTable& costs) {
  return mesh.recomputes_layers ? recompute_all(costs) : LayerSet{};
}

ScheduleKind kind_of(const DecoderMesh& mesh) {
  return mesh.virtual_stages > 1 ? ScheduleKind::kInterleaved : ScheduleKind::k1f1b;
}

// A model's costs under one division of its layers, whatever the pipeline: the search looks at many
// pipelines of each.
class DividedModel {
 public:
  DividedModel(const DecoderTraining& training, const DecoderMesh& mesh)
      : training_(training),
        model_(model_of(training, mesh)),
        request_(request_of(training, mesh)),
        recompute_(recomputed_layers(mesh, model_.costs)),
        shards_(shard_layout(request_.zero, mesh.axes.weight_ranks(), model_.dataflow,
                             layers_with_weights(model_.costs))),
        costs_(with_mesh_seconds(model_.costs, request_)),
        collectives_(collective_seconds(costs_, shards_, request_)),
        estimator_(model_.dataflow, resident_costs(costs_, shards_), recompute_, false) {}

  MeshEstimate operator()(const DecoderMesh& mesh) const {
    const Partition partition =
        even_partition(training_.shape, mesh.axes[Axis::kPipeline] * mesh.virtual_stages);
    const PipelineShape shape{.ranks = mesh.axes[Axis::kPipeline],
                              .micro_batches = mesh.micro_batches(training_.samples),
                              .virtual_stages = mesh.virtual_stages};
    std::vector<double> seconds;
    double bytes = 0;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const RankEstimate estimate = of_rank(mesh, shape, partition, rank);
      seconds.push_back(estimate.seconds);
      bytes = std::max(bytes, estimate.bytes);
    }
    return {.mesh = mesh,
            .step_seconds = pipeline_seconds(shape, seconds) + end_seconds(mesh, partition),
            .bytes = bytes + static_cast<double>(costs_.context_bytes + costs_.workspace_bytes)};
  }

 private:
  struct RankEstimate {
    double seconds = 0;  // of a micro-batch
    double bytes = 0;
  };

  // A rank is charged for what its stages read, keep and send of each micro-batch in flight.
  RankEstimate of_rank(const DecoderMesh& mesh, const PipelineShape& shape,
                       const Partition& partition, int rank) const {
    const int held = in_flight_bound(kind_of(mesh), shape, rank), stages = partition.num_stages();
    RankEstimate result;
    double fixed = 0, activations = 0, transient = 0;
    for (int s = rank; s < stages; s += shape.ranks) {
      const StageEstimate stage = estimator_(partition.layers(s));
      const bool sends = s + 1 < stages && shape.ranks > 1;
      const auto sent = static_cast<double>(sends ? costs_.values.front().bytes : 0);
      result.seconds += stage.seconds;
      fixed += static_cast<double>(stage.fixed_bytes);
      activations = std::max(activations, static_cast<double>(stage.activation_bytes) + sent);
      transient = std::max(transient, static_cast<double>(stage.transient_bytes));
    }
    result.bytes = fixed + held * activations + transient;
    return result;
  }

  // The slowest rank works on every micro-batch, and the others' first and last ones fill and drain
  // the pipeline. With one stage a rank, rank r has at most p - r micro-batches in flight, so that
  // each takes at least that part of the way to the last rank and back. A recompute starts before
  // the gradient arrives.
  double pipeline_seconds(const PipelineShape& shape, const std::vector<double>& ranks) const {
    const double slowest = *std::ranges::max_element(ranks);
    if (shape.ranks == 1) return shape.micro_batches * slowest;
    const double transfer = costs_.values.front().transfer_seconds;
    const double again = recompute_.has(1) ? costs_.layers[1].forward_seconds : 0;
    const double hop = transfer + std::max(0.0, transfer - again);
    double period = slowest, sum = 0;
    for (int r = shape.ranks - 1; r >= 0; --r) {
      sum += ranks[r];
      const int later = shape.ranks - 1 - r;
      if (shape.virtual_stages == 1) period = std::max(period, (sum + later * hop) / (later + 1));
    }
    return (shape.micro_batches - 1) * period + slowest + (sum - slowest) / shape.virtual_stages +
           (shape.ranks - 1) * hop;
  }

  // The first stage ends last. Its replicas sum gradients while it works on the last micro-batch,
  // except those of its first layer; then it updates and exchanges what it shards.
  double end_seconds(const DecoderMesh& mesh, const Partition& partition) const {
    const LayerRange first = partition.layers(0);
    double reduce = 0, backward = 0, update = 0;
    for (int l = first.begin; l < first.end; ++l) {
      reduce += collectives_.reduce[l];
      if (l > first.begin)
        backward += costs_.layers[l].backward_seconds +
                    (recompute_.has(l) ? costs_.layers[l].forward_seconds : 0);
    }
    for (int s = 0; s < partition.num_stages(); s += mesh.axes[Axis::kPipeline])
      for (int l = partition.layers(s).begin; l < partition.layers(s).end; ++l)
        update += costs_.layers[l].update_seconds + collectives_.gather[l];
    return std::max(collectives_.reduce[first.begin], reduce - backward) + update;
  }

  const DecoderTraining& training_;
  DecoderModel model_;
  MeshRequest request_;
  LayerSet recompute_;
  ShardLayout shards_;
  CostTable costs_;
  CollectiveSeconds collectives_;
  StageEstimator estimator_;
};

// Divisions of layers that do not depend on the pipeline.
std::vector<DecoderMesh> divisions(const DecoderTraining& training, const Mesh& axes) {
  std::vector<DecoderMesh> all;
  const std::int64_t samples = training.samples / axes[Axis::kData];
  for (std::int64_t size = 1; size <= kLargestMicroBatch && samples % size == 0; size *= 2)
    for (int zero = 0; zero <= (axes.weight_ranks() > 1 ? 1 : 0); ++zero)
      for (const Recompute level : {Recompute::kCheap, Recompute::kProducts, Recompute::kAttention})
        all.push_back({.axes = axes,
                       .micro_batch = size,
                       .zero = zero,
                       .sequence_parallel = axes[Axis::kTensor] > 1 &&
                                            training.shape.tokens % axes[Axis::kTensor] == 0,
                       .recompute = level});
  DecoderMesh full = {};
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    if (all[i].recompute != Recompute::kCheap) continue;
    full = all[i];
    full.recomputes_layers = true;
    all.push_back(full);
  }
  return all;
}

}  // namespace

Partition even_partition(const DecoderShape& shape, int stages) {
  Partition partition;
  for (int s = 0; s <= stages; ++s)
    partition.bounds.push_back(static_cast<int>(shape.layers * s / stages) + (s > 0 ? 1 : 0));
  ++partition.bounds.back();
  return partition;
}

MeshEstimate estimate(const DecoderTraining& training, const DecoderMesh& mesh) {
  return DividedModel(training, mesh)(mesh);
}

std::vector<MeshEstimate> estimate_meshes(const DecoderTraining& training, int ranks) {
  std::vector<MeshEstimate> all;
  const MeshLimits limits{.mini_batch = training.samples,
                          .layers = training.shape.layers,
                          .heads = training.shape.heads};
  const std::int64_t devices = std::max<std::int64_t>(training.machine.peers.devices, 1);
  for (const Mesh& axes : legal_meshes(ranks, 1, limits)) {
    if (axes[Axis::kContext] > 1) continue;  // the costs of a block do not divide its tokens
    if (axes[Axis::kTensor] > devices || training.samples % axes[Axis::kData] != 0) continue;
    for (DecoderMesh mesh : divisions(training, axes)) {
      const DividedModel model(training, mesh);
      const int most = axes[Axis::kPipeline] > 1 ? kMostVirtualStages : 1;
      for (int v = 1; v <= most && v * axes[Axis::kPipeline] <= training.shape.layers; ++v) {
        mesh.virtual_stages = v;
        all.push_back(model(mesh));
      }
    }
  }
  return all;
}

DecoderPlan search_meshes(const DecoderTraining& training, int ranks) {
  const double room = static_cast<double>(training.machine.device.bytes.count);
  std::multimap<double, MeshEstimate> fitting;  // by seconds
  std::optional<MeshEstimate> leanest;
  int candidates = 0;
  for (const MeshEstimate& tried : estimate_meshes(training, ranks)) {
    ++candidates;
    if (!leanest || tried.bytes < leanest->bytes) leanest = tried;
    if (tried.bytes <= room) fitting.emplace(tried.step_seconds, tried);
  }
  std::optional<DecoderPlan> best;
  int plans = 0;
  std::int64_t layers = 0;
  for (const auto& [seconds, tried] : fitting) {
    layers += training.shape.layers * tried.mesh.micro_batches(training.samples);
    if (++plans > kPlans || (best && layers > kPlannedLayers)) break;
    Plan plan = planned(training, tried.mesh);
    if (static_cast<double>(peak_bytes(plan.ledger)) > room) continue;
    if (best &&
        plan.simulation.step_seconds >= best->plan.simulation.step_seconds * (1 - kNoFaster))
      continue;
    best = {.mesh = tried.mesh, .plan = std::move(plan), .candidates = candidates};
  }
  if (best) return std::move(*best);
  throw kMeshErrors.user(std::to_string(ranks) + " ranks", "no mesh of this model fits its devices",
                         "at most " + format_bytes(training.machine.device.bytes.count) + " a rank",
                         leanest ? "at least " +
                                       format_bytes(static_cast<std::int64_t>(leanest->bytes)) +
                                       " with " + mesh_text(leanest->mesh)
                                 : "no legal mesh",
                         "take more ranks, or a mini-batch that more replicas divide");
}

PlanRequest decoder_request(const DecoderTraining& training, const DecoderMesh& mesh) {
  const DecoderModel model = model_of(training, mesh);
  PlanRequest request{.dataflow = model.dataflow,
                      .micro_batches = mesh.micro_batches(training.samples),
                      .virtual_stages = mesh.virtual_stages,
                      .schedule = kind_of(mesh),
                      .mesh = request_of(training, mesh),
                      .sample_tokens = training.shape.tokens,
                      .machine = training.machine};
  request.costs = model.costs;
  request.micro_batch = mesh.micro_batch;
  return request;
}

Plan planned(const DecoderTraining& training, const DecoderMesh& mesh) {
  const PlanRequest request = decoder_request(training, mesh);
  const int stages = mesh.axes[Axis::kPipeline] * mesh.virtual_stages;
  return evaluate(request, {.partition = even_partition(training.shape, stages),
                            .recompute = {.whole = recomputed_layers(mesh, request.mode_costs())},
                            .reduce = ReduceMode::kOnce});
}

std::string schedule_text(const DecoderMesh& mesh) {
  const std::string stages =
      mesh.virtual_stages > 1 ? " x " + std::to_string(mesh.virtual_stages) : "";
  return name_of(kind_of(mesh)) + stages + ", micro-batch " + std::to_string(mesh.micro_batch) +
         ", recompute " + (mesh.recomputes_layers ? "full" : name_of(mesh.recompute));
}

std::string mesh_text(const DecoderMesh& mesh) {
  return mesh.axes.text() + ", zero " + std::to_string(mesh.zero);
}

}  // namespace strata
