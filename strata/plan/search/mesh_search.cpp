// Every legal combination is planned in full. A combination takes milliseconds, one with a searched
// order several times as long, so a cheaper estimate to prune some would save little.
#include "strata/plan/search/mesh_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/plan/search/proposal.h"
#include "strata/plan/search/shared_devices.h"

namespace strata {
namespace {

// relative difference below which two meshes count as equally fast
constexpr double kNoFaster = 1e-3;
constexpr int kTriedVirtualStages = 4;
constexpr int kLastZero = 3;

std::vector<MeshOptions> candidates(const MeshOptions& requested, const MeshLimits& limits) {
  std::vector<MeshOptions> all;
  for (const Mesh& mesh : legal_meshes(requested.rank_count(), 1, limits)) {
    MeshOptions options = requested;
    options.automatic = false;
    options.axes = mesh;
    options.sequence_parallel = requested.sequence_parallel && mesh[Axis::kTensor] > 1;
    if (!divides_tokens(options, limits)) continue;
    int& zero = options.zero.stage;
    for (zero = 0; zero <= (mesh.weight_ranks() > 1 ? kLastZero : 0); ++zero) {
      const bool shards = zero > 0 && requested.zero.shard_ranks > 0;
      options.zero.shard_ranks = shards && mesh.weight_ranks() % requested.zero.shard_ranks == 0
                                     ? requested.zero.shard_ranks
                                     : 0;
      options.schedule = ScheduleKind::k1f1b;
      options.virtual_stages = 1;
      all.push_back(options);
      if (mesh[Axis::kPipeline] == 1) continue;
      for (const ScheduleKind kind :
           {ScheduleKind::kGpipe, ScheduleKind::kZbH1, ScheduleKind::kZb}) {
        options.schedule = kind;
        all.push_back(options);
      }
      options.schedule = ScheduleKind::kZbv;
      options.virtual_stages = 2;
      if (is_legal(mesh, 2, limits)) all.push_back(options);
      options.schedule = ScheduleKind::kInterleaved;
      for (int v = 2; v <= kTriedVirtualStages && is_legal(mesh, v, limits); v *= 2) {
        options.virtual_stages = v;
        all.push_back(options);
      }
    }
  }
  return all;
}

MeshTrial try_out(const MeshOptions& mesh, const RequestOf& request_of) {
  MeshTrial trial{.mesh = mesh};
  try {
    const PlanRequest request = request_of(mesh);
    const Plan plan = propose(request);
    trial.fits = fits(plan);
    trial.step_seconds = plan.simulation.step_seconds;
    trial.peak_bytes = peak_bytes(plan.ledger);
    trial.shared_bytes = shared_peak_bytes(plan.costs.devices, plan.ledger);
    trial.communication =
        communication_of(plan.steps, plan.micro_batches, request.costs.at(plan.decisions().levels),
                         request.mesh, tier_seconds(plan, plan.costs), plan.recorded);
    const Communication& sent = trial.communication;
    trial.bubble_seconds = std::max(
        0.0, idle_share(plan.costs.devices, plan.simulation) * plan.simulation.step_seconds -
                 sent.exposed_seconds[Axis::kPipeline] - sent.exposed_seconds[Axis::kData]);
    if (!trial.fits) {
      const std::int64_t device = trial.peak_bytes - request.memory.device.count;
      const std::int64_t host = host_bytes(plan.ledger) - request.memory.host.count;
      const bool over = request.memory.device.count > 0 && device > 0;
      if (over) trial.budgets = "memory.device=" + format_bytes_exactly(trial.peak_bytes);
      if (!have_room(plan.costs.devices, plan.ledger)) {
        trial.crowded = true;
        trial.why =
            "memory: " + format_bytes(trial.shared_bytes - plan.costs.devices.device_bytes) +
            " more than a GPU has";
        return trial;
      }
      if (request.memory.host.count > 0 && host > 0) {
        trial.budgets += (over ? " and memory.host=" : "memory.host=") +
                         format_bytes_exactly(host_bytes(plan.ledger));
      }
      trial.why = (over ? "memory: " : "host memory: ") + format_bytes(over ? device : host) +
                  " over the budget";
    }
  } catch (const UserError& error) {
    trial.why = error.text().what;
  }
  return trial;
}

// Seconds of a step by cause.
struct Part {
  const char* name;
  double seconds;
};

std::vector<Part> parts_of(const MeshTrial& trial) {
  const Communication& sent = trial.communication;
  double others = 0;
  std::vector<Part> parts{{"compute", 0}, {"bubble", trial.bubble_seconds}};
  for (const AxisInfo& axis : kAxes) {
    others += sent.exposed_seconds[axis.id];
    parts.push_back({axis.traffic, sent.exposed_seconds[axis.id]});
  }
  parts.front().seconds = std::max(0.0, trial.step_seconds - (others + trial.bubble_seconds));
  return parts;
}

std::string why_slower(const MeshTrial& trial, const MeshTrial& winner) {
  const std::vector<Part> mine = parts_of(trial), best = parts_of(winner);
  std::size_t worst = 0;
  for (std::size_t i = 1; i < mine.size(); ++i) {
    const auto surplus = [&](std::size_t k) { return mine[k].seconds - best[k].seconds; };
    if (surplus(i) > surplus(worst)) worst = i;
  }
  const double factor = trial.step_seconds / winner.step_seconds;
  if (factor < 1 + kNoFaster) return "as fast, but less simple";
  return format_double(factor, 2) + " × as slow: " + mine[worst].name + " " +
         format_seconds(mine[worst].seconds) + " instead of " + format_seconds(best[worst].seconds);
}

std::string schedule_text(const MeshOptions& mesh) {
  const std::string name = name_of(mesh.schedule);
  return mesh.virtual_stages == 1 ? name : name + " × " + std::to_string(mesh.virtual_stages);
}

[[noreturn]] void refuse(const std::vector<MeshTrial>& trials, std::int64_t ranks) {
  const MeshTrial* leanest = nullptr;
  for (const MeshTrial& trial : trials) {
    if (trial.peak_bytes == 0) continue;
    const auto bytes = [](const MeshTrial& of) { return std::max(of.peak_bytes, of.shared_bytes); };
    if (leanest == nullptr || bytes(trial) < bytes(*leanest)) leanest = &trial;
  }
  const std::string count = std::to_string(ranks);
  if (leanest == nullptr) {
    throw UserError({.operation = "plan.mesh",
                     .where = "mesh.auto",
                     .what = "no mesh of this many ranks is legal",
                     .expected = "stages within the layers, replicas within the mini-batch, "
                                 "parts that divide the tokens, tensor-parallel ranks that "
                                 "divide the heads",
                     .got = count + " ranks",
                     .fix = "set mesh.ranks to a smaller number"});
  }
  const MeshOptions& mesh = leanest->mesh;
  throw UserError(
      {.operation = "plan.mesh",
       .where = "mesh.auto",
       .what = "no mesh of this many ranks fits its memory",
       .expected = "a mesh of " + count + " ranks within the budget",
       .got = "at least " + format_bytes(std::max(leanest->peak_bytes, leanest->shared_bytes)) +
              " (" + mesh.axes.text() + ", zero " + std::to_string(mesh.zero.stage) + ", " +
              schedule_text(mesh) + "; " + leanest->why + ")",
       .fix = leanest->crowded ? "set mesh.ranks to a smaller number, such as that of the GPUs"
                               : "set " + leanest->budgets + ", or mesh.ranks to a larger number"});
}

}  // namespace

MeshSearch search_mesh(const MeshOptions& requested, const MeshLimits& limits,
                       const RequestOf& request_of) {
  MeshSearch search;
  for (const MeshOptions& mesh : candidates(requested, limits)) {
    search.trials.push_back(try_out(mesh, request_of));
  }
  std::vector<MeshTrial>& trials = search.trials;
  const MeshTrial* best = nullptr;
  for (const MeshTrial& trial : trials) {
    if (!trial.fits) continue;
    if (best == nullptr || trial.step_seconds < best->step_seconds * (1 - kNoFaster)) {
      best = &trial;
    }
  }
  if (best == nullptr) refuse(trials, requested.rank_count());

  // The winner first, then those that fit by seconds, then the others.
  std::multimap<std::pair<int, double>, MeshTrial> ranking;
  for (const MeshTrial& trial : trials) {
    const int group = &trial == best ? 0 : trial.fits ? 1 : 2;
    ranking.emplace(std::pair(group, trial.step_seconds), trial);
  }
  trials.clear();
  for (auto& [place, trial] : ranking) trials.push_back(std::move(trial));
  for (MeshTrial& trial : trials) {
    if (trial.why.empty()) trial.why = why_slower(trial, trials.front());
  }
  trials.front().why = "fastest that fits";
  return search;
}

std::string search_text(const MeshSearch& search, int rows) {
  std::vector<std::string> heads;
  for (const AxisInfo& axis : kAxes) heads.emplace_back(axis.name);
  heads.insert(heads.end(), {"zero", "schedule", "step", "peak", ""});
  TextTable table(std::string(kAxes.size(), 'r') + "rlrrl");
  table.add_row(heads);
  std::vector<Mesh> shown;
  for (const MeshTrial& trial : search.trials) {
    const MeshOptions& mesh = trial.mesh;
    if (static_cast<int>(shown.size()) > rows) break;
    if (std::ranges::count(shown, mesh.axes) > 0) continue;
    shown.push_back(mesh.axes);
    const bool planned = trial.peak_bytes > 0;
    std::vector<std::string> row;
    for (const AxisInfo& axis : kAxes) row.push_back(std::to_string(mesh.axes[axis.id]));
    row.insert(
        row.end(),
        {std::to_string(mesh.zero.stage), schedule_text(mesh),
         planned ? format_seconds(trial.step_seconds) : "-",
         planned ? format_bytes(std::max(trial.peak_bytes, trial.shared_bytes)) : "-", trial.why});
    table.add_row(row);
  }
  return "mesh auto: " + std::to_string(search.trials.size()) +
         " combinations; of each shape the best\n\n" + table.text();
}

}  // namespace strata
