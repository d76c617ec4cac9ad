/// Computes what moves between a rank's device, its host and its disk: bytes, seconds, and which of
/// compute, link, disk and host optimizer a step waits for.
///
/// Units  bytes per step and rank; seconds of a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/plan/machine_profile.h"
#include "strata/plan/plan_options.h"
#include "strata/plan/simulate/shard_bytes.h"
#include "strata/plan/simulate/simulator.h"
#include "strata/schedule/step_plan.h"

namespace strata {

/// Rates per direction, in bytes per second; 0: takes no time.
struct TierRates {
  double to_device = 0;
  double to_host = 0;
  double latency = 0;  ///< fixed seconds of every transfer over the link
  /// bytes per second that the host's optimizer reads and writes; 0: the layers' own seconds
  double update = 0;
  double disk_read = 0;
  double disk_write = 0;
  std::string text = {};  ///< text for the user: the rates and their sources
};

/// Defaults for a machine that was not measured: copies within memory, and updates.
inline constexpr double kAssumedCopyRate = 5e9;
inline constexpr double kAssumedUpdateRate = 10e9;
inline constexpr double kAssumedDiskRate = 1e9;

/// The link of the recipe takes precedence over the machine's. `update_threads`: threads of a
/// rank's updates on the host; 0: all cores. `measured`: the layers' own update seconds were
/// measured on the host.
TierRates tier_rates(const MemoryOptions& memory, const MachineProfile& machine, int update_threads,
                     bool measured);

/// Bytes that an update reads and writes in host memory: gradients are read, all else is read and
/// written. fp16 weights are only written, which is 2 bytes of 32.
std::int64_t update_bytes(const HostBytes& host);

/// For the simulator: the seconds of layers that the host updates.
TierSeconds tier_seconds(const CostTable& costs, const ShardLayout& shards, const TierLayout& tiers,
                         const TierRates& rates);

struct TierTraffic {
  std::int64_t to_device = 0;
  std::int64_t to_host = 0;
  std::int64_t fetches = 0;  ///< fetches of layers' weights
  std::int64_t disk_read = 0;
  std::int64_t disk_written = 0;  ///< in a step that commits
  friend bool operator==(const TierTraffic&, const TierTraffic&) = default;
};

/// What `program` moves.
TierTraffic tier_traffic(const Program& program, const CostTable& costs,
                         const std::vector<ShardBytes>& layers, const ShardLayout& shards,
                         const TierLayout& tiers);

/// Tokens (or samples) per step below which a resource takes longer than the compute that overlaps
/// with it. Transfers and reads overlap with the whole step; updates and their writes to disk
/// overlap with backward if a layer is updated at once, and with the next forward otherwise. The
/// bounds are those of the rank that needs the most.
///
/// Source  Ren et al. 2021 (ZeRO-Offload), section 4; Sun et al. 2022 (STRONGHOLD).
struct TierBounds {
  std::string unit = "tokens";
  double amount = 0;  ///< amount of this step
  double link = 0;
  double update = 0;
  double disk = 0;  ///< 0: no disk
};

TierBounds tier_bounds(const Simulation& simulation, const Schedule& schedule, bool updates_at_once,
                       double amount, const std::string& unit);

/// "link-bound below 6 k tokens a step; optimizer-bound below 14 k; this one has 4.1 k: the
/// optimizer binds".
std::string binding_sentence(const TierBounds& bounds);

}  // namespace strata
