/// What a user says of the mesh and of its memory: how many ranks hold the model, what they divide, in
/// which order they work, and what may be computed twice to fit a device.
#pragma once

#include <cstdint>
#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"
#include "strata/disk/block_io.h"
#include "strata/schedule/action.h"
#include "strata/schedule/mesh.h"
#include "strata/schedule/zero.h"
#include "strata/transport/transport.h"

namespace strata {

struct MeshOptions {
  bool automatic = false;  ///< `auto`: plan chooses pp, dp, tp, zero, schedule and virtual_stages
  std::int64_t ranks = 0;  ///< for auto: how many; 0: pp x dp x tp, or one for each process or core
  std::int64_t pp = 1;
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t zero = 0;         ///< 1: shards states, 2: and gradients, 3: and weights
  std::int64_t shard_ranks = 0;  ///< replicas that share one set of shards; 0: all of dp
  ReduceMode reduce = ReduceMode::kAuto;
  Reduction reduction = Reduction::kOrdered;
  bool sequence_parallel = false;  ///< with tp: activations between split regions divided too
  std::int64_t virtual_stages = 1;
  ScheduleKind schedule = ScheduleKind::k1f1b;        ///< not kForward
  std::int64_t threads = 0;                           ///< per rank; 0: cores / ranks
  TransportKind transport = TransportKind::kSockets;  ///< between processes
  double stall_seconds = 10;        ///< a rank that others wait for is named after these; 0: never
  double stall_fatal_seconds = 60;  ///< and the run ends after these; 0: never

  Mesh mesh() const { return {static_cast<int>(pp), static_cast<int>(dp), static_cast<int>(tp)}; }
  ZeroPolicy zero_policy() const {
    return {.stage = static_cast<int>(zero),
            .shard_ranks = static_cast<int>(shard_ranks),
            .reduce = reduce};
  }
};

void describe(OptionSet& set, const std::string& prefix, MeshOptions& options);

/// What runs again in backward instead of being kept.
enum class RecomputeMode : std::uint8_t {
  kNone,   ///< nothing: operations keep all they need
  kCheap,  ///< GELU and norms, inside layers
  kFull,   ///< every layer
  kAuto,   ///< of layers, the cheapest that make the plan fit
};
const char* name_of(RecomputeMode mode);  ///< "none", "cheap", "full", "auto"

/// Where a kind of the layers' state lives between its uses.
enum class TierChoice : std::uint8_t {
  kAuto,  ///< on the device, unless it doesn't fit there
  kDevice,
  kHost,
  kDisk,  ///< not gradients
};
const char* name_of(TierChoice choice);  ///< "auto", "device", "host", "disk"

/// Between device and host. On a CPU an emulated one, each way of its own.
struct MemoryLink {
  Bytes bandwidth{};   ///< a second and way; 0: as fast as memory
  double latency = 0;  ///< seconds of every transfer
};

struct MemoryDisk {
  std::string path;               ///< folder; empty: there is no disk
  Bytes bytes{};                  ///< budget of a rank; 0: as much as is free
  std::int64_t commit_every = 1;  ///< steps
  DiskBackend io = DiskBackend::kAuto;
};

struct MemoryOptions {
  Bytes device{};  ///< budget of a rank; 0: no limit
  Bytes host{};    ///< budget of a rank for what does not live on its device; 0: no limit
  RecomputeMode recompute = RecomputeMode::kCheap;
  TierChoice weights = TierChoice::kAuto;
  TierChoice gradients = TierChoice::kAuto;
  TierChoice states = TierChoice::kAuto;
  TierChoice activations = TierChoice::kAuto;  ///< the inputs of layers that run again
  std::int64_t window = 0;  ///< layers whose weights are on the device at once; 0: as many as fit
  MemoryLink link = {};
  MemoryDisk disk = {};
};

void describe(OptionSet& set, const std::string& prefix, MemoryOptions& options);

}  // namespace strata
