#include "strata/run/rank_options.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "strata/base/errors.h"
#include "strata/task/task.h"

namespace strata {
namespace {

// More threads on one machine would only wait for each other.
constexpr int kMostThreadsHere = 1024;

// A stalled rank is named after one sixth of the seconds that end the run.
constexpr double kStallDivisor = 6;

void check_threads(const Recipe& recipe) {
  const int processes = std::max(1, rendezvous_from_environment().processes);
  const int ranks = (recipe.mesh.axes.size() + processes - 1) / processes;
  const std::int64_t threads = std::int64_t{ranks} * recipe.threads_per_rank();
  if (threads <= kMostThreadsHere) return;
  throw UserError({.operation = "run.plan",
                   .where = "mesh",
                   .what = "a process would start too many threads",
                   .expected = "at most " + std::to_string(kMostThreadsHere),
                   .got = std::to_string(ranks) + " ranks of " +
                          std::to_string(recipe.threads_per_rank()) + " threads",
                   .fix = "start more processes, or set mesh.threads or an axis of the mesh to a "
                          "smaller number"});
}

std::function<void(const std::string&)> notice_of_stalls(const ResolvedRun& run) {
  if (!run.on_notice) return {};
  return [notice = run.on_notice](const std::string& line) { notice("stall: " + line); };
}

}  // namespace

TrainerOptions trainer_options(const Recipe& recipe) {
  return {.machine = {.seed = static_cast<std::uint64_t>(recipe.train.seed),
                      .clip = recipe.train.clip,
                      .label_smoothing = recipe.train.label_smoothing},
          .precision = recipe.train.precision,
          .optimizer = recipe.optimizer,
          .outer = recipe.outer,
          .host_bytes = recipe.memory.host.count,
          .link = {.bytes_per_second = static_cast<double>(recipe.memory.link_bandwidth.count)},
          .graph = {.mode = recipe.train.graph},
          .disk = {.path = recipe.memory.disk.path,
                   .bytes = recipe.memory.disk.bytes.count,
                   .file = {.setting = "memory.disk.path"}}};
}

RanksOptions ranks_options(const Recipe& recipe) {
  check_threads(recipe);
  const double fatal = recipe.mesh.stall_fatal_seconds;
  return {.ranks = recipe.mesh.axes.size(),
          .threads_per_rank = recipe.threads_per_rank(),
          .device_bytes = recipe.memory.device.count,
          .device = recipe.rank_device(),
          .mesh = recipe.mesh.axes,
          .stall_seconds = fatal > 0 ? fatal / kStallDivisor : RanksOptions{}.stall_seconds,
          .stall_fatal_seconds = fatal,
          .transport = recipe.mesh.transport,
          .link = recipe.mesh.link(),
          .reduction = recipe.mesh.reduction};
}

RanksOptions ranks_options(const ResolvedRun& run) {
  RanksOptions options = ranks_options(run.recipe);
  options.fingerprint = run.fingerprint;
  options.warn = notice_of_stalls(run);
  return options;
}

World join_world(const ResolvedRun& run) { return World(ranks_options(run)); }

}  // namespace strata
