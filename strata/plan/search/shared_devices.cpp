#include "strata/plan/search/shared_devices.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Numbers devices in the order of their first rank.
std::vector<int> numbered(const std::vector<std::uint64_t>& device_of_rank) {
  std::map<std::uint64_t, int> numbers;
  std::vector<int> devices;
  for (const std::uint64_t device : device_of_rank)
    devices.push_back(numbers.emplace(device, static_cast<int>(numbers.size())).first->second);
  return devices;
}

// One pipeline, by the work of its devices, the busiest first.
struct Pipeline {
  std::vector<int> of_rank;
  std::vector<double> times_as_long;
  std::size_t most = 0;

  Pipeline(const Mesh& mesh, int first, const std::vector<int>& devices,
           const std::vector<std::vector<int>>& ranks_on) {
    for (const int rank : mesh.line(first, Axis::kPipeline)) of_rank.push_back(devices[rank]);
    for (const int device : of_rank) {
      most = std::max(most, ranks_on[device].size());
      times_as_long.push_back(static_cast<double>(ranks_on[device].size()) /
                              static_cast<double>(std::ranges::count(of_rank, device)));
    }
  }
  std::pair<std::size_t, double> load() const {
    return {most, std::accumulate(times_as_long.begin(), times_as_long.end(), 0.0)};
  }
};

}  // namespace

SharedDevices shared_devices(const Mesh& mesh, const std::vector<std::uint64_t>& device_of_rank,
                             std::int64_t device_bytes) {
  if (device_of_rank.empty()) return {};
  STRATA_CHECK_EQ(device_of_rank.size(), static_cast<std::size_t>(mesh.size()), "plan.devices");
  const std::vector<int> devices = numbered(device_of_rank);
  std::vector<std::vector<int>> ranks_on(std::ranges::max(devices) + 1);
  if (ranks_on.size() == devices.size()) return {};
  for (int rank = 0; rank < mesh.size(); ++rank)
    ranks_on[devices[rank]].push_back(mesh.place(rank)[Axis::kPipeline]);
  std::vector<Pipeline> pipelines;
  for (const int first : mesh.stage_ranks(0))
    pipelines.emplace_back(mesh, first, devices, ranks_on);
  Pipeline& most = *std::ranges::max_element(pipelines, {}, &Pipeline::load);
  return {.of_rank = std::move(most.of_rank),
          .times_as_long = std::move(most.times_as_long),
          .ranks_on = std::move(ranks_on),
          .device_bytes = device_bytes};
}

std::vector<std::uint64_t> devices_in_turns(int ranks, int ranks_a_machine, int devices) {
  std::vector<std::uint64_t> of_rank;
  for (int rank = 0; rank < ranks; ++rank)
    of_rank.push_back(static_cast<std::uint64_t>(rank / ranks_a_machine) * devices +
                      rank % ranks_a_machine % devices);
  return of_rank;
}

int most_ranks_on_one(const SharedDevices& devices) {
  std::size_t most = 1;
  for (const std::vector<int>& ranks : devices.ranks_on) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

std::int64_t shared_peak_bytes(const SharedDevices& devices, const Ledger& ledger) {
  std::int64_t most = 0;
  for (const std::vector<int>& ranks : devices.ranks_on) {
    std::int64_t bytes = 0;
    for (const int rank : ranks) bytes += ledger[rank].peak_bytes;
    most = std::max(most, bytes);
  }
  return most;
}

double idle_share(const SharedDevices& devices, const Simulation& step) {
  if (devices.empty() || step.step_seconds <= 0) return step.bubble;
  double busy = 0;
  for (const RankTimeline& rank : step.ranks) busy += rank.busy_seconds;
  const std::set<int> used(devices.of_rank.begin(), devices.of_rank.end());
  return std::max(0.0, 1 - busy / (static_cast<double>(used.size()) * step.step_seconds));
}

bool have_room(const SharedDevices& devices, const Ledger& ledger) {
  return devices.device_bytes == 0 || shared_peak_bytes(devices, ledger) <= devices.device_bytes;
}

}  // namespace strata
