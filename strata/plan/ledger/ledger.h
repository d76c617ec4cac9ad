/// Computes the bytes of each rank during a simulated step, by the rules that real stages follow.
///
/// For the whole step: weights, gradients, optimizer states, copies of tied weights whose owner is
/// on another rank, and the mini-batch.
///
/// Temporarily:
///  - A value is held by the rank that computed or received it until all its readers there have run
///    backward (forward, in forward-only schedules), recomputed readers included. Its sender is
///    charged until it knows that the value was received, however late the receiver is (without a
///    norm at the end of a step: until it was received), and longer if the sender has readers
///    itself.
///  - What a layer saved is held from its forward, or its recompute, to the end of its backward.
///  - A value has one gradient per reader, of the value's size, from that reader's backward to the
///    end of the producer's. The rank that sent it is charged as for a value.
///  - A tied weight, and the gradient of its use on another rank, are sent as copies and charged to
///    the sender like values. The owner's rank then holds the gradient until it is added.
///  - While a layer runs, its transients are added; in a recompute also its outputs, which exist
///    again.
///
/// With replicas (shard_bytes.h), in addition to the permanent shards:
///  - The whole weights of a layer that shards them are buffers from prefetch to release.
///  - Where gradients are sharded, a layer's whole gradient is held in addition to the shard from
///    its first backward to the end of the rank's next reduction, or to the norm, because another
///    rank may read it late. It counts as gradients if reduced once a step, as buffers if after
///    every micro-batch.
///  - A reduction in flight has buffers for the gradients that it receives, and at its end one for
///    the block being added. On a GPU the sum of a gradient that lives on the host is a buffer from
///    then on to the end of the next layer's reduction, or the norm: it is offloaded while the next
///    sum is computed.
///  - A rank's part of gathered weights that live off the device is held from prefetch until every
///    replica must have read it: on a GPU, or in the host's staging buffers if it comes from the
///    disk.
///
/// With layers that live on the host (layout/tiers.h), on the device:
///  - Whole weights are buffers from prefetch to release.
///  - Whole gradients are held from a layer's first backward to the end of its reduction or of its
///    offload, which the next offload or the norm waits for.
/// On the host: weights, gradients and states of layers that the host updates, for the whole step,
/// except those that live on disk, which pass through staging buffers (disk/staging.h).
///
/// On a GPU (plan/search/gpu_costs.h), in addition: the driver's context, what libraries and NCCL
/// keep, the pools of recorded segments (segment_pools.h), and the rounding of permanent buffers to
/// the allocator's blocks.
///
/// Units   bytes; those of a micro-batch scale with its size and are rounded to whole ones.
/// Cost    linear in the number of (action, layer) pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/plan/ledger/byte_changes.h"
#include "strata/plan/ledger/byte_kinds.h"
#include "strata/plan/simulate/shard_bytes.h"
#include "strata/plan/simulate/simulator.h"

namespace strata {

struct RankLedger {
  std::int64_t peak_bytes = 0;
  int peak_position =
      -1;  ///< index in the rank's program; -1: before its first action, or in a validation
  ByteTable at_peak;
  /// pools of all recordings, which are permanent; the peak already contains a part of them
  std::int64_t pool_bytes = 0;
  HostBytes host = {};          ///< of all layers; constant over the step
  HostBytes on_disk = {};       ///< the part of `host` that lives on disk
  std::int64_t disk_bytes = 0;  ///< bytes on disk, with two slots for each chunk
  /// ascending in time; the peak of an action is at its begin
  std::vector<MemoryPoint> timeline;
};

/// One entry per rank; with replicas, each rank of the pipeline represents all of its replicas.
using Ledger = std::vector<RankLedger>;

/// `simulation` is that of `schedule`. The programs tell which layers are recomputed.
/// `other_pools`: per rank, the pools of other programs that its device repeats; empty: none.
Ledger make_ledger(const Schedule& schedule, const Dataflow& dataflow, const Partition& partition,
                   const CostTable& costs, const Simulation& simulation,
                   const ShardLayout& shards = {}, bool reads_in_place = true,
                   const TierLayout& tiers = {}, const RecordedPrograms& recorded = {},
                   const std::vector<std::int64_t>& other_pools = {});

/// Adds what lives off the device of the layers that hold `layers`.
void add_tiers(Ledger& ledger, const Dataflow& dataflow, const LayerPlacement& placement,
               const std::vector<ShardBytes>& layers, const ShardLayout& shards,
               const TierLayout& tiers, bool trains);

std::int64_t peak_bytes(const Ledger& ledger);  ///< on the fullest rank's device
std::int64_t host_bytes(const Ledger& ledger);  ///< in the fullest rank's host memory
std::int64_t disk_bytes(const Ledger& ledger);  ///< on the fullest rank's disk

}  // namespace strata
