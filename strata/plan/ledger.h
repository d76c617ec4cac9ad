/// Follows every byte of a step through a simulated run, rank by rank, by the rules that real
/// stages follow.
///
/// For the whole step: weights, gradients, optimizer states, copies of tied weights whose owner
/// lives on another rank, and the mini-batch.
///
/// For a while:
///  - A value lives on the rank that made or received it until all its readers there have run
///    backward (forward, in forward-only schedules), recomputed readers too. The rank that sent it
///    is charged until it knows that it has been received, however late the other rank is (where
///    no norm ends a step: until it has been), longer if it has readers itself.
///  - What a layer saved lives from its forward, or its recompute, to the end of its backward.
///  - A value has a gradient per reader, as large as itself, from that reader's backward to the end
///    of the producer's; the rank that sent it is charged as for a value.
///  - A tied weight, and the gradient that its use elsewhere gives, are sent as copies, charged to the sender like
///    values; the gradient then lives on the owner's rank until it is added.
///  - On top, while a layer runs: its transients; in a recompute its outputs, which exist again.
///
/// With replicas (shard_bytes.h), beside the shards that stay:
///  - The whole weights of a layer that shards them are buffers from prefetch to release.
///  - Where gradients are sharded, a layer's whole gradient lives beside the shard from its first
///    backward to the end of the next reduction of the rank, or to the norm, for another rank may be late to read
///    it: as gradients if that is once a step, as buffers if after every micro-batch.
///  - A reduction in flight has buffers for what it receives of the others' gradients, and at its end one
///    for what is added up at a time. On a GPU the sum of what lives on the host is a buffer from then on to the
///    end of the next one's reduction, or the norm: it leaves while that is made.
///  - A rank's part of weights that live off the device and that replicas gather lies beside them from prefetch until
///    every replica must have read it: on a GPU, or in the host's staging where it comes from the disk.
///
/// With layers that live on the host (schedule/tiers.h), on the device:
///  - Weights that live there are buffers from prefetch to release; whole, as layers need them.
///  - Gradients that live there are whole from a layer's first backward to the end of its offload,
///    which the next offload or the norm waits for, or of its reduction.
/// On the host: weights, gradients and states of layers that it updates, for the whole step, but for those
/// that live on disk, which pass through its staging (disk/staging.h).
///
/// On a GPU (plan/gpu_costs.h), beside all that: the driver's context, what libraries and NCCL keep, the pools of
/// recorded segments (segment_pools.h), and the rounding of buffers that stay to the allocator's blocks.
///
/// Units   bytes; those of a micro-batch scale with its size and are rounded to whole ones.
/// Cost    linear in the number of (action, layer) pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/plan/byte_changes.h"
#include "strata/plan/byte_kinds.h"
#include "strata/plan/shard_bytes.h"
#include "strata/plan/simulator.h"

namespace strata {

struct RankLedger {
  std::int64_t peak_bytes = 0;
  int peak_position =
      -1;  ///< in the rank's program; -1: before its first action, or in a validation
  ByteTable at_peak;
  std::int64_t pool_bytes = 0;  ///< of all recordings, for ever; of it, the peak has a part anyway
  HostBytes host = {};          ///< all of its layers', the same at all times
  HostBytes on_disk = {};       ///< of them, what lives on disk
  std::int64_t disk_bytes = 0;  ///< what the disk needs for it, two slots each
  std::vector<MemoryPoint> timeline;  ///< ascending in time; an action's peak stands at its begin
};

/// One entry a rank; with replicas, a rank of the pipeline stands for each of its replicas.
using Ledger = std::vector<RankLedger>;

/// `simulation` is that of `schedule`; which layers run again is read from the programs. `other_pools`: per rank, of
/// what else its device repeats beside this schedule; empty: nothing.
Ledger make_ledger(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                   const CostTable& costs, const Simulation& simulation,
                   const ShardLayout& shards = {}, bool reads_in_place = true,
                   const TierLayout& tiers = {}, const RecordedPrograms& recorded = {},
                   const std::vector<std::int64_t>& other_pools = {});

/// Adds what lives off the device, of layers that hold `layers`.
void add_tiers(Ledger& ledger, const Dataflow& dataflow, const LayerPlacement& placement,
               const std::vector<ShardBytes>& layers, const ShardLayout& shards,
               const TierLayout& tiers, bool trains);

std::int64_t peak_bytes(const Ledger& ledger);  ///< of the fullest rank's device
std::int64_t host_bytes(const Ledger& ledger);  ///< of the fullest rank's host memory
std::int64_t disk_bytes(const Ledger& ledger);  ///< of the fullest rank's disk

}  // namespace strata
