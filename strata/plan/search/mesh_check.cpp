#include "strata/plan/search/mesh_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/base/errors.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

std::string text(std::int64_t number) { return std::to_string(number); }

std::string field_of(Axis axis) { return std::string("mesh.") + name_of(axis); }

// "mesh.pp, mesh.dp, mesh.cp or mesh.tp"
std::string all_fields() {
  std::string fields;
  for (std::size_t i = 0; i < kAxes.size(); ++i) {
    fields += (i == 0 ? "" : i + 1 < kAxes.size() ? ", " : " or ") + field_of(kAxes[i].id);
  }
  return fields;
}

class Check {
 public:
  Check(const MeshOptions& mesh, const MeshLimits& limits, const PlaceOf& place_of)
      : mesh_(mesh), limits_(limits), place_of_(place_of) {}

  void require(bool holds, const std::string& field, const std::string& what,
               const std::string& expected, const std::string& got, const std::string& fix) const {
    if (holds) return;
    throw UserError({.operation = "plan.mesh",
                     .where = place_of_ ? place_of_(field) : field,
                     .what = field + ": " + what,
                     .expected = expected,
                     .got = got,
                     .fix = fix});
  }

  // Must run before sizes of axes are multiplied as int.
  void size() const {
    std::int64_t size = 1;
    for (const AxisInfo& axis : kAxes) {
      const std::int64_t most = std::numeric_limits<std::int64_t>::max() / mesh_.axes[axis.id];
      size = std::min(size, most) * mesh_.axes[axis.id];
    }
    require(size <= kMostRanks, "mesh", "the mesh has too many ranks",
            "at most " + text(kMostRanks), text(size), "set " + all_fields() + " to less");
  }

  void stages() const {
    const std::string name = name_of(mesh_.schedule);
    const int fixed = traits_of(mesh_.schedule).stages_per_rank;
    const bool plain = mesh_.schedule == ScheduleKind::k1f1b;
    require(mesh_.virtual_stages == 1 || fixed != 1, "mesh.virtual_stages",
            name + " has one stage a rank", plain ? "schedule interleaved or gpipe" : "1",
            plain ? name : text(mesh_.virtual_stages),
            plain ? "set mesh.schedule=interleaved" : "set mesh.virtual_stages=1");
    require(mesh_.virtual_stages == 1 || fixed != 2 || mesh_.virtual_stages == 2,
            "mesh.virtual_stages", name + " has two stages a rank", "2", text(mesh_.virtual_stages),
            "set mesh.virtual_stages=2");
    require(mesh_.schedule_file.empty() || mesh_.schedule == ScheduleKind::kFile,
            "mesh.schedule_file", "another schedule is chosen", "schedule file", name,
            "set mesh.schedule=file");
    require(!mesh_.schedule_file.empty() || mesh_.schedule != ScheduleKind::kFile,
            "mesh.schedule_file", "the schedule has no file", "a CSV file", "none",
            "set mesh.schedule_file to one");
    const std::int64_t stages = mesh_.axes[Axis::kPipeline] * mesh_.stages_per_rank();
    require(limits_.layers == 0 || stages <= limits_.layers, "mesh.pp", "more stages than layers",
            "at most " + text(limits_.layers) + " stages (blocks, embedding, head)", text(stages),
            mesh_.stages_per_rank() > limits_.layers
                ? fixed > 1 ? "set mesh.schedule=1f1b" : "set mesh.virtual_stages=1"
                : "set mesh.pp=" + text(limits_.layers / mesh_.stages_per_rank()));
  }

  void replicas() const {
    require(limits_.mini_batch == 0 || mesh_.axes[Axis::kData] <= limits_.mini_batch, "mesh.dp",
            "more replicas than samples in a mini-batch",
            "at most " + text(limits_.mini_batch) + ", the samples of train.mini_batch",
            text(mesh_.axes[Axis::kData]), "set mesh.dp=" + text(limits_.mini_batch));
    require(mesh_.zero.shard_ranks == 0 || mesh_.zero.stage > 0, "mesh.shard_ranks",
            "nothing is sharded with zero 0", "zero 1, 2 or 3, or shard_ranks 0",
            text(mesh_.zero.shard_ranks), "set mesh.zero=1");
    require(
        mesh_.zero.reduce != ReduceMode::kEach || mesh_.axes.weight_ranks() == 1 ||
            mesh_.zero.stage >= 2,
        "mesh.reduce", "whole gradients stay, so adding them after each micro-batch saves nothing",
        "zero 2 or 3, or reduce once", "zero " + text(mesh_.zero.stage), "set mesh.reduce=once");
    const int ranks = std::max(1, mesh_.zero.shard_ranks);
    const int holders = mesh_.axes.weight_ranks();
    require(holders % ranks == 0, "mesh.shard_ranks", "shard groups must divide the replicas",
            "a divisor of mesh.dp x mesh.cp " + text(holders), text(ranks),
            "set mesh.shard_ranks=" + text(nearest_divisor(holders, ranks)));
  }

  void context_ranks() const {
    const ContextSplit split = mesh_.context_split();
    require(split.ranks == 1 || limits_.has_tokens, "mesh.cp",
            "samples of this task have no tokens that ranks can divide", "1", text(split.ranks),
            "set mesh.cp=1, and mesh.dp or mesh.pp instead");
    require(split.block == 0 || limits_.has_tokens, "mesh.cp_block",
            "samples of this task have no tokens", "0", text(split.block), "set mesh.cp_block=0");
    const bool ring = split.in_blocks() && split.ranks > 1;
    require(limits_.in_ring || !ring, "mesh.cp_exchange",
            "with a sparse model.attention.pattern ranks cannot attend in a ring", "ulysses",
            "ring", "set mesh.cp_exchange=ulysses");
    require(limits_.in_ring || split.block == 0, "mesh.cp_block",
            "attention with a sparse pattern has its own blocks, model.attention.block", "0",
            text(split.block), "set mesh.cp_block=0");
    require(split.ranks > 1 || split.exchange == ContextExchange::kRing, "mesh.cp_exchange",
            "ranks that divide samples are what exchanges heads", "mesh.cp of at least 2",
            "mesh.cp 1", "set mesh.cp_exchange=ring");
    require(split.block == 0 || split.exchange == ContextExchange::kRing, "mesh.cp_block",
            "ranks that exchange heads attend to all tokens at once", "0, or mesh.cp_exchange ring",
            text(split.block), "set mesh.cp_block=0");
    const std::int64_t unit = split.unit(parts());
    require(limits_.context % unit == 0, split.block > 0 ? "mesh.cp_block" : "mesh.cp",
            "ranks must divide a sample's tokens into two chunks each" +
                std::string(split.block > 0 ? ", and these into blocks" : ""),
            "a multiple of " + text(unit) + " tokens", text(limits_.context) + " tokens",
            split.block > 0 ? "set mesh.cp_block=0" : "set mesh.cp=1");
    const std::int64_t heads = limits_.kv_heads / mesh_.axes[Axis::kTensor];
    require(split.exchange != ContextExchange::kUlysses || heads == 0 || split.ranks <= heads,
            "mesh.cp_exchange", "more ranks than key-value heads that they can exchange",
            "mesh.cp of at most " + text(heads), text(split.ranks),
            limits_.in_ring ? "set mesh.cp_exchange=ring" : "set mesh.cp=" + text(heads));
  }

  void tensor_ranks() const {
    heads("heads", limits_.heads);
    heads("key-value heads", limits_.kv_heads);
    require(!mesh_.sequence_parallel || mesh_.axes[Axis::kTensor] > 1, "mesh.sequence_parallel",
            "tensor-parallel ranks are what divides the sequence", "mesh.tp of at least 2",
            "mesh.tp " + text(mesh_.axes[Axis::kTensor]), "set mesh.sequence_parallel=false");
    require(!mesh_.sequence_parallel || limits_.context % mesh_.axes[Axis::kTensor] == 0,
            "mesh.sequence_parallel", "tensor-parallel ranks must divide a sample's tokens evenly",
            "a multiple of mesh.tp " + text(mesh_.axes[Axis::kTensor]),
            text(limits_.context) + " tokens", "set mesh.sequence_parallel=false");
  }

  void world() const {
    const Mesh& mesh = mesh_.axes;
    if (limits_.world == 0 || mesh.size() == limits_.world) return;
    const std::string started = text(limits_.world) + " ranks";
    require(false, "mesh", "the mesh has another size than the world", started + " were started",
            mesh.text(" x ") + " = " + text(mesh.size()), world_fix(mesh));
  }

 private:
  std::int64_t parts() const { return mesh_.sequence_parallel ? mesh_.axes[Axis::kTensor] : 1; }

  static std::int64_t nearest_divisor(std::int64_t of, std::int64_t to) {
    std::int64_t nearest = 1;
    for (std::int64_t d = 1; d <= of; ++d) {
      if (of % d == 0 && std::abs(d - to) < std::abs(nearest - to)) nearest = d;
    }
    return nearest;
  }

  void heads(const std::string& name, std::int64_t count) const {
    if (count == 0) return;
    std::int64_t tp = std::min<std::int64_t>(mesh_.axes[Axis::kTensor], count);
    while (count % tp != 0) --tp;
    require(tp == mesh_.axes[Axis::kTensor], "mesh.tp",
            "tensor-parallel ranks must divide the " + name + " evenly",
            "a divisor of " + text(count), text(mesh_.axes[Axis::kTensor]),
            "set mesh.tp=" + text(tp));
  }

  // The legal mesh whose axes change by the smallest factors; replicas change first.
  std::string world_fix(const Mesh& mesh) const {
    const Mesh* nearest = nullptr;
    double least = std::numeric_limits<double>::infinity();
    const auto all =
        legal_meshes(static_cast<int>(limits_.world), mesh_.stages_per_rank(), limits_);
    for (const Mesh& other : all) {
      MeshOptions options = mesh_;
      options.axes = other;
      if (!divides_tokens(options, limits_)) continue;
      const auto factor = [](int a, int b) { return std::fabs(std::log2(double(a) / b)); };
      double change = factor(other[Axis::kData], mesh[Axis::kData]);
      for (const AxisInfo& axis : kAxes) {
        if (axis.id != Axis::kData) change += 2 * factor(other[axis.id], mesh[axis.id]);
      }
      if (change >= least) continue;
      least = change;
      nearest = &other;
    }
    if (nearest == nullptr) return "start " + text(mesh.size()) + " ranks";
    std::string settings;
    for (const AxisInfo& axis : kAxes) {
      const int value = (*nearest)[axis.id];
      if (value == mesh[axis.id]) continue;
      settings += (settings.empty() ? "" : " and ") + field_of(axis.id) + "=" + text(value);
    }
    return "set " + settings + ", or start " + text(mesh.size()) + " ranks";
  }

  const MeshOptions& mesh_;
  const MeshLimits& limits_;
  const PlaceOf& place_of_;
};

}  // namespace

void check_mesh(const MeshOptions& mesh, const MeshLimits& limits, const PlaceOf& place_of) {
  const Check check(mesh, limits, place_of);
  check.size();
  check.stages();
  check.replicas();
  check.tensor_ranks();
  check.context_ranks();
  check.world();
}

bool divides_tokens(const MeshOptions& mesh, const MeshLimits& limits) {
  const ContextSplit split = mesh.context_split();
  const int tp = mesh.axes[Axis::kTensor];
  if (!limits.in_ring && split.in_blocks()) return false;
  if (limits.context % split.unit(mesh.sequence_parallel ? tp : 1) != 0) return false;
  return split.exchange == ContextExchange::kRing || limits.kv_heads == 0 ||
         split.ranks <= limits.kv_heads / tp;
}

bool is_legal(const Mesh& mesh, std::int64_t virtual_stages, const MeshLimits& limits) {
  return (limits.layers == 0 || mesh[Axis::kPipeline] * virtual_stages <= limits.layers) &&
         (limits.mini_batch == 0 || mesh[Axis::kData] <= limits.mini_batch) &&
         limits.heads % mesh[Axis::kTensor] == 0 && limits.kv_heads % mesh[Axis::kTensor] == 0 &&
         (mesh[Axis::kContext] == 1 || (limits.has_tokens && limits.context > 0 &&
                                        limits.context % (2 * mesh[Axis::kContext]) == 0));
}

namespace {

// Divides `ranks` among kModelAxesFirst from the `next` one on.
void add_meshes(Mesh mesh, std::size_t next, int ranks,
                const std::function<void(const Mesh&)>& add) {
  const Axis axis = kModelAxesFirst[next];
  if (next + 1 == kModelAxesFirst.size()) {
    mesh[axis] = ranks;
    return add(mesh);
  }
  for (mesh[axis] = 1; mesh[axis] <= ranks; ++mesh[axis]) {
    if (ranks % mesh[axis] == 0) add_meshes(mesh, next + 1, ranks / mesh[axis], add);
  }
}

}  // namespace

std::vector<Mesh> legal_meshes(int ranks, std::int64_t virtual_stages, const MeshLimits& limits) {
  std::vector<Mesh> meshes;
  add_meshes({}, 0, ranks, [&](const Mesh& mesh) {
    if (is_legal(mesh, virtual_stages, limits)) meshes.push_back(mesh);
  });
  return meshes;
}

}  // namespace strata
