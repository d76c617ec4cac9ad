// The fix of an error has to name settings that work, so each alternative is planned, nearest
// first, except those whose fixed bytes alone exceed the memory of all ranks.
#include "strata/plan/search/proposal.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/plan/search/shared_devices.h"
#include "strata/plan/text/plan_text.h"

namespace strata {
namespace {

constexpr int kMoreRanks = 8;  // tried at most
constexpr double kMostLayerRuns = 1e4;
constexpr int kLastZeroStage = 3;

// A request that differs from the user's in these settings.
struct Alternative {
  PlanRequest request;
  std::vector<std::string> settings;

  void set(const std::string& name, const std::string& value) {
    const std::string start = name + "=";
    std::erase_if(settings, [&](const std::string& s) { return s.rfind(start, 0) == 0; });
    settings.push_back(start + value);
  }
  std::string text() const {
    std::string text = "set ";
    for (std::size_t i = 0; i < settings.size(); ++i) text += (i ? " and " : "") + settings[i];
    return text;
  }
};

bool trains(const PlanRequest& request) { return request.schedule != ScheduleKind::kForward; }

Alternative with_auto(Alternative from) {
  const RecomputeMode mode = from.request.memory.recompute;
  if (!trains(from.request) || mode == RecomputeMode::kAuto || mode == RecomputeMode::kFull)
    return from;
  from.request.memory.recompute = RecomputeMode::kAuto;
  from.set("memory.recompute", "auto");
  return from;
}

void without_order(Alternative& from) {
  if (!from.request.order) return;
  from.request.order = nullptr;
  from.set("mesh.schedule_file", "");
}

Alternative with_1f1b(Alternative from) {
  if (!trains(from.request) || from.request.schedule == ScheduleKind::k1f1b) return from;
  from.request.schedule = ScheduleKind::k1f1b;
  from.set("mesh.schedule", "1f1b");
  without_order(from);
  if (from.request.virtual_stages > 1) {
    from.request.virtual_stages = 1;
    from.set("mesh.virtual_stages", "1");
  }
  return from;
}

Alternative with_performed(Alternative from) {
  if (from.request.recording != RecordingPlan::kAlways) return from;
  from.request.recording = RecordingPlan::kIfItFits;
  from.set("train.graph", "auto");
  return from;
}

void halve(CostTable& costs, int micro_batches) {
  std::vector<double> halves;
  for (int i = 0; i < micro_batches; ++i) halves.insert(halves.end(), 2, costs.scale(i) / 2);
  costs.micro_batch_scale = std::move(halves);
}

Alternative with_tiers(Alternative from) {
  MemoryOptions& memory = from.request.memory;
  if (!trains(from.request)) return from;
  const auto open = [&](const char* name, TierChoice& choice) {
    if (choice != TierChoice::kDevice) return;
    choice = TierChoice::kAuto;
    from.set(name, "auto");
  };
  if (!from.request.states_on_device) {
    open("memory.weights", memory.weights);
    open("memory.gradients", memory.gradients);
    open("memory.states", memory.states);
  }
  open("memory.activations", memory.activations);
  return from;
}

// With layers off the device, only one at a time then has an accumulating gradient.
Alternative with_vertical(Alternative from) {
  const PlanRequest& request = from.request;
  const bool gains = request.schedule != ScheduleKind::kVertical && request.micro_batches > 1;
  if (!trains(request) || !gains || tier_placements(request.memory, true).size() == 1) return from;
  if (traits_of(request.schedule).v_shaped) {
    from.request.virtual_stages = 1;
    from.set("mesh.virtual_stages", "1");
  }
  from.request.schedule = ScheduleKind::kVertical;
  from.set("mesh.schedule", "vertical");
  without_order(from);
  return from;
}

Alternative with_half_micro_batch(Alternative from) {
  for (CostTable& costs : from.request.costs) halve(costs, from.request.micro_batches);
  from.request.micro_batches *= 2;
  from.request.micro_batch /= 2;
  from.set("train.micro_batch", std::to_string(from.request.micro_batch));
  return from;
}

// The user has to choose the folder. A net with embeddings cannot live on a disk.
Alternative with_disk(Alternative from) {
  const bool reads_rows = from.request.dataflow.rows_layer >= 0;
  if (!trains(from.request) || reads_rows || from.request.states_on_device ||
      !from.request.memory.disk.path.empty())
    return from;
  from.request.memory.disk.path = "FOLDER";
  from.request.memory.disk.bytes = {};
  from.set("memory.disk.path", "FOLDER (on a disk)");
  return from;
}

// Replicas that send signs need several groups; a request without settings is the same.
Alternative with_zero(Alternative from, int zero) {
  MeshRequest& mesh = from.request.mesh;
  if (mesh.sends_signs && mesh.zero.shard_ranks == 0) {
    const int most = most_in_group(mesh.axes.weight_ranks(), mesh.axes[Axis::kContext]);
    if (most == 1) return {.request = from.request, .settings = {}};
    mesh.zero.shard_ranks = most;
    from.set("mesh.shard_ranks", std::to_string(most));
  }
  mesh.zero.stage = zero;
  from.set("mesh.zero", std::to_string(zero));
  return from;
}

Alternative with_ranks(Alternative from, int ranks) {
  from.request.mesh.axes[Axis::kPipeline] = ranks;
  from.set("mesh.pp", std::to_string(ranks));
  return from;
}

// Ordered from the nearest.
std::vector<Alternative> alternatives(const PlanRequest& request) {
  const Alternative same{.request = request, .settings = {}};
  const Alternative plain = with_performed(with_auto(with_1f1b(same)));
  const Alternative leanest = with_tiers(plain);
  std::vector<Alternative> all{with_performed(same),
                               with_auto(same),
                               with_1f1b(same),
                               plain,
                               with_tiers(same),
                               leanest,
                               with_vertical(with_tiers(with_auto(same)))};
  if (trains(request) && request.mesh.outer_every == 0 && request.mesh.axes.weight_ranks() > 1) {
    for (int zero = request.mesh.zero.stage + 1; zero <= kLastZeroStage; ++zero) {
      all.push_back(with_zero(same, zero));
      all.push_back(with_zero(leanest, zero));
    }
  }
  Alternative smaller = leanest;
  while (smaller.request.micro_batch > 1 && smaller.request.micro_batch % 2 == 0) {
    smaller = with_half_micro_batch(smaller);
    all.push_back(smaller);
  }
  all.push_back(with_disk(leanest));
  // More ranks on the same devices do not add memory.
  const int most = request.mode_costs().devices.empty()
                       ? request.dataflow.num_layers / leanest.request.virtual_stages
                       : 0;
  for (int more = 1; more <= kMoreRanks; ++more) {
    const int ranks = request.mesh.axes[Axis::kPipeline] + more;
    if (ranks <= most) all.push_back(with_ranks(leanest, ranks));
  }
  std::erase_if(all, [](const Alternative& a) { return a.settings.empty(); });
  return all;
}

std::int64_t rounded_up(std::int64_t bytes) {
  constexpr std::int64_t kKiB = 1024;
  std::int64_t unit = 1;
  while (bytes / unit >= 64 * kKiB) unit *= kKiB;
  return (bytes + unit - 1) / unit * unit;
}

// Whether the permanent bytes of all ranks exceed the memory of all ranks, for any cut.
bool is_hopeless(const PlanRequest& request) {
  const CostTable& costs = request.mode_costs();
  const LayerSet with_weights = layers_with_weights(costs);
  const ShardLayout shards = shard_layout(
      request.mesh.zero, request.mesh.update_mesh().weight_ranks(), request.dataflow, with_weights);
  const int layers = request.dataflow.num_layers;
  const TierLayout tiers = tiers_on_ranks(
      tier_layout(tier_placements(request.memory, trains(request)).back(), layers, false),
      request.dataflow, with_weights, std::vector<int>(layers), shards);
  double fixed = 0;
  for (const ShardBytes& layer : shard_bytes(costs, shards, /*reads_in_place=*/true, tiers)) {
    fixed += static_cast<double>(layer.weights + layer.gradients + layer.states);
  }
  const auto device = static_cast<double>(request.memory.device.count);
  return device > 0 && fixed > device * request.mesh.axes[Axis::kPipeline];
}

bool fits_in(Alternative& alternative, std::int64_t device_bytes) {
  alternative.request.memory.device.count = device_bytes;
  return !is_hopeless(alternative.request) && fits(first_that_fits(alternative.request));
}

// For a device that is too small even with everything else on host and disk.
Alternative with_enough_elsewhere(Alternative from) {
  Alternative any = from;
  any.request.memory.device.count = 0;
  Plan plan = propose(any.request);
  if (fits(plan)) return from;
  if (!have_room(plan.costs.devices, plan.ledger)) {  // a larger host has memory for it
    any.request.memory.host = {};
    plan = propose(any.request);
  }
  const auto raise = [&](const char* name, Bytes& budget, std::int64_t bytes) {
    if (budget.count == 0 || bytes <= budget.count) return;
    budget.count = rounded_up(bytes);
    from.set(name, format_bytes_exactly(budget.count));
  };
  raise("memory.host", from.request.memory.host, host_bytes(plan.ledger));
  raise("memory.disk.bytes", from.request.memory.disk.bytes, disk_bytes(plan.ledger));
  return from;
}

// Bisects between a budget that does not fit and one that does, to half a per cent.
Alternative with_smallest_budget(Alternative from) {
  if (!is_hopeless(from.request) && fits(first_that_fits(from.request))) return from;
  std::int64_t low = from.request.memory.device.count;
  std::int64_t high = rounded_up(peak_bytes(propose(from.request).ledger));
  while (!fits_in(from, high)) high += high / 64 + 1;
  const double layer_runs =
      static_cast<double>(from.request.dataflow.num_layers) * from.request.micro_batches;
  // each trial takes seconds, so the peak is close enough
  if (layer_runs > kMostLayerRuns) low = high;
  while (high - low > std::max<std::int64_t>(1, high / 200)) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits_in(from, middle) ? high : low) = middle;
  }
  from.request.memory.device.count = rounded_up(high);
  from.set("memory.device", format_bytes_exactly(rounded_up(high)));
  return from;
}

// Whether shared devices are too small for any budget of their ranks.
bool devices_are_too_small(PlanRequest request) {
  if (request.mode_costs().devices.empty()) return false;
  request.memory.device = {};
  return !fits(first_that_fits(request));
}

std::string nearest_fix(const PlanRequest& request) {
  for (const Alternative& alternative : alternatives(request)) {
    if (!is_hopeless(alternative.request) && fits(first_that_fits(alternative.request)))
      return alternative.text();
  }
  const Alternative same{.request = request, .settings = {}};
  const Alternative leanest = with_enough_elsewhere(with_tiers(with_auto(with_1f1b(same))));
  if (devices_are_too_small(leanest.request)) {
    const std::size_t devices = request.mode_costs().devices.ranks_on.size();
    return "set mesh.pp, mesh.dp and mesh.tp for fewer ranks, such as " +
           (devices == 1 ? "one" : "one for each of the " + std::to_string(devices) + " GPUs");
  }
  return with_smallest_budget(leanest).text();
}

// Names the tier that is too small.
std::string over_budget(const Plan& plan) {
  const MemoryOptions& memory = plan.memory;
  const auto over = [](std::int64_t bytes, Bytes budget) {
    return budget.count > 0 && bytes > budget.count;
  };
  if (over(peak_bytes(plan.ledger), memory.device)) return "memory.device allows";
  if (!have_room(plan.costs.devices, plan.ledger)) return "a GPU has for the ranks that share it";
  return over(host_bytes(plan.ledger), memory.host) ? "memory.host allows"
                                                    : "memory.disk.bytes allows";
}

std::string allowed_text(const Plan& plan) {
  const MemoryOptions& memory = plan.memory;
  std::string text;
  const auto add = [&](Bytes budget, const std::string& where) {
    if (budget.count == 0) return;
    text += (text.empty() ? "" : ", ") + std::string("at most ") + format_bytes(budget.count);
    text += where;
  };
  add(memory.device, " on every rank");
  add({plan.costs.devices.device_bytes}, " on a GPU");
  if (plan.placement.leaves_device()) add(memory.host, " of its host's memory");
  if (disk_bytes(plan.ledger) > 0) add(memory.disk.bytes, " of its disk");
  return text;
}

std::string needed_text(const Plan& plan) {
  const std::int64_t shared = shared_peak_bytes(plan.costs.devices, plan.ledger);
  std::string text = format_bytes(peak_bytes(plan.ledger)) + " on the fullest";
  if (shared > 0) text += ", " + format_bytes(shared) + " on the fullest GPU";
  if (plan.placement.leaves_device())
    text += ", " + format_bytes(host_bytes(plan.ledger)) + " of the fullest's host memory";
  if (disk_bytes(plan.ledger) > 0)
    text += ", " + format_bytes(disk_bytes(plan.ledger)) + " of the fullest's disk";
  text += "\n" + byte_table(plan.ledger, plan.memory.device.count);
  text += host_table(plan.ledger, plan.memory.host.count);
  text += disk_table(plan.ledger, plan.memory.disk.bytes.count);
  text.pop_back();
  return text;
}

}  // namespace

void refuse(const PlanRequest& request, const Plan& plan) {
  const std::string count = std::to_string(request.mesh.axes[Axis::kPipeline]);
  std::string where = count + (count == "1" ? " rank, " : " ranks, ") + name_of(request.schedule) +
                      ", recompute " + name_of(request.memory.recompute);
  if (plan.placement.leaves_device()) where += ", " + placement_text(plan.placement);
  throw UserError({.operation = "plan.memory",
                   .where = where,
                   .what = "the plan needs more memory than " + over_budget(plan),
                   .expected = allowed_text(plan),
                   .got = needed_text(plan),
                   .fix = nearest_fix(request)});
}

}  // namespace strata
