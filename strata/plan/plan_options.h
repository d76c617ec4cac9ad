/// Holds the user's options for the mesh and its memory: how many ranks hold the model, what they
/// divide, in which order they work, and what may be recomputed to fit a device.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"
#include "strata/layout/context_split.h"
#include "strata/layout/mesh.h"
#include "strata/layout/recompute.h"
#include "strata/layout/zero.h"
#include "strata/schedule/action.h"
#include "strata/transport/slow_link.h"
#include "strata/transport/transport.h"

namespace strata {

struct MeshOptions {
  /// `auto`: the planner chooses pp, dp, cp, tp, zero, schedule and virtual_stages
  bool automatic = false;
  /// for auto: how many ranks; 0: the size of `axes`, or one per process or core
  std::int64_t ranks = 0;
  Mesh axes = {};
  ZeroPolicy zero = {};
  Reduction reduction = Reduction::kOrdered;
  bool sequence_parallel = false;  ///< with tp: also divides activations between split regions
  ContextExchange cp_exchange = ContextExchange::kRing;
  std::int64_t cp_block = 0;  ///< tokens; ContextSplit::block
  std::int64_t virtual_stages = 1;
  ScheduleKind schedule = ScheduleKind::k1f1b;     ///< not kForward
  std::string schedule_file;                       ///< of kFile
  std::int64_t threads = 0;                        ///< per rank; 0: cores / ranks
  TransportKind transport = TransportKind::kAuto;  ///< between processes
  Bytes link_bandwidth{};   ///< a second, that a process sends to others; emulated; 0: no limit
  double link_latency = 0;  ///< seconds that messages between processes take longer; emulated
  /// After this time without progress the run ends, after a sixth of it a rank that others wait for
  /// is named; 0: named after 10 s, the run never ends.
  double stall_fatal_seconds = 60;

  /// Stages that every rank holds: virtual_stages, unless the schedule has a number of its own.
  std::int64_t stages_per_rank() const;
  /// The network between processes that is emulated.
  LinkLimit link() const {
    return {.bytes_per_second = static_cast<double>(link_bandwidth.count),
            .latency_seconds = link_latency};
  }
  /// How the ranks of cp divide samples.
  ContextSplit context_split() const {
    return {.ranks = axes[Axis::kContext], .exchange = cp_exchange, .block = cp_block};
  }
  int rank_count() const { return ranks > 0 ? static_cast<int>(ranks) : axes.size(); }
};

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options);

/// What is recomputed in backward instead of being kept.
enum class RecomputeMode : std::uint8_t {
  kNone,       ///< inside layers: nothing
  kCheap,      ///< inside layers: activations and norms
  kProducts,   ///< also the products after norms
  kAttention,  ///< also attention
  kFull,       ///< every layer as a whole
  kAuto,       ///< the cheapest of these for each layer that make the plan fit
};
/// "none", "cheap", "products", "attention", "full", "auto"
const char* name_of(RecomputeMode mode);
/// The level of layers that do not run again as a whole. With kAuto some may have deeper ones.
Recompute level_of(RecomputeMode mode);

/// Where one kind of a layer's state lives between its uses.
enum class TierChoice : std::uint8_t {
  kAuto,  ///< on the device, if it fits
  kDevice,
  kHost,
  kDisk,  ///< not for activations
};
const char* name_of(TierChoice choice);  ///< "auto", "device", "host", "disk"

struct MemoryDisk {
  std::string path;               ///< folder; empty: no disk
  Bytes bytes{};                  ///< budget of a rank; 0: all free space
  std::int64_t commit_every = 1;  ///< steps
};

struct MemoryOptions {
  Bytes device{};  ///< budget of a rank; 0: no limit
  Bytes host{};    ///< budget of a rank for what lives off its device; 0: no limit
  RecomputeMode recompute = RecomputeMode::kCheap;
  TierChoice weights = TierChoice::kAuto;
  TierChoice gradients = TierChoice::kAuto;
  TierChoice states = TierChoice::kAuto;
  TierChoice activations = TierChoice::kAuto;  ///< the inputs of recomputed layers
  /// layers whose weights are on the device at once; 0: as many as fit
  std::int64_t window = 0;
  /// of the link between device and host, per second and direction; on a CPU it is emulated; 0: as
  /// fast as memory
  Bytes link_bandwidth{};
  MemoryDisk disk = {};
};

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options);

}  // namespace strata
