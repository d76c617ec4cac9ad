/// Holds the user's options for the mesh and its memory: how many ranks hold the model, what they
/// divide, in which order they work, and what may be recomputed to fit a device.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"
#include "strata/disk/block_io.h"
#include "strata/layout/mesh.h"
#include "strata/layout/zero.h"
#include "strata/schedule/action.h"
#include "strata/transport/transport.h"

namespace strata {

struct MeshOptions {
  /// `auto`: the planner chooses pp, dp, tp, zero, schedule and virtual_stages
  bool automatic = false;
  /// for auto: how many ranks; 0: pp x dp x tp, or one per process or core
  std::int64_t ranks = 0;
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t zero = 0;         ///< 1: shards states, 2: also gradients, 3: also weights
  std::int64_t shard_ranks = 0;  ///< replicas that share one set of shards; 0: all replicas
  ReduceMode reduce = ReduceMode::kAuto;
  Reduction reduction = Reduction::kOrdered;
  bool sequence_parallel = false;  ///< with tp: also divides activations between split regions
  std::int64_t virtual_stages = 1;
  ScheduleKind schedule = ScheduleKind::k1f1b;     ///< not kForward
  std::int64_t threads = 0;                        ///< per rank; 0: cores / ranks
  TransportKind transport = TransportKind::kAuto;  ///< between processes
  /// after this time the error names a rank that others wait for; 0: never
  double stall_seconds = 10;
  double stall_fatal_seconds = 60;  ///< after this time the run ends; 0: never

  Mesh mesh() const { return {static_cast<int>(pp), static_cast<int>(dp), static_cast<int>(tp)}; }
  ZeroPolicy zero_policy() const {
    return {.stage = static_cast<int>(zero),
            .shard_ranks = static_cast<int>(shard_ranks),
            .reduce = reduce};
  }
};

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options);

/// What is recomputed in backward instead of being kept.
enum class RecomputeMode : std::uint8_t {
  kNone,   ///< nothing: operations keep everything they need
  kCheap,  ///< GELU and norms, inside layers
  kFull,   ///< every layer
  kAuto,   ///< the cheapest layers that make the plan fit
};
const char* name_of(RecomputeMode mode);  ///< "none", "cheap", "full", "auto"

/// Where one kind of a layer's state lives between its uses.
enum class TierChoice : std::uint8_t {
  kAuto,  ///< on the device, if it fits
  kDevice,
  kHost,
  kDisk,  ///< not for activations
};
const char* name_of(TierChoice choice);  ///< "auto", "device", "host", "disk"

/// The link between device and host. On a CPU an emulated one, with independent directions.
struct MemoryLink {
  Bytes bandwidth{};   ///< per second and direction; 0: as fast as memory
  double latency = 0;  ///< fixed seconds of every transfer
};

struct MemoryDisk {
  std::string path;               ///< folder; empty: no disk
  Bytes bytes{};                  ///< budget of a rank; 0: all free space
  std::int64_t commit_every = 1;  ///< steps
  DiskBackend io = DiskBackend::kAuto;
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
  MemoryLink link = {};
  MemoryDisk disk = {};
};

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options);

}  // namespace strata
