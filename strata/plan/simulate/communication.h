/// Computes what ranks exchange along each axis of the mesh: bytes, seconds, and the exposed share
/// of a step. In addition to the pipeline, the planner knows replicas (with what they shard),
/// ranks with parts of the sequence, and tensor-parallel ranks.
///
/// A cost table describes one tensor-parallel rank, its part of the sequence, and one replica's
/// part of the mini-batch. Ranks with parts of the sequence have the same weights, so they add
/// gradients and share shards like replicas, and this counts for the axis dp. Exposed time is what
/// the step would save if the axis took no time: it excludes work that overlaps with compute.
///
/// Units  bytes that one rank sends; seconds of a step; rates in bytes per second, 0: takes no
///        time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "strata/layout/costs.h"
#include "strata/plan/plan_options.h"
#include "strata/plan/simulate/shard_bytes.h"
#include "strata/plan/simulate/simulator.h"
#include "strata/schedule/step_plan.h"

namespace strata {

using AxisRates = PerAxis<double>;

/// Assumed, not measured: ranks of one process pass pointers and read each other's memory; between
/// processes, sockets copy the bytes.
inline constexpr AxisRates kThreadRates{
    {Axis::kPipeline, 0}, {Axis::kData, 5e9}, {Axis::kContext, 5e9}, {Axis::kTensor, 5e9}};
inline constexpr AxisRates kProcessRates{
    {Axis::kPipeline, 1e9}, {Axis::kData, 1e9}, {Axis::kContext, 1e9}, {Axis::kTensor, 1e9}};

/// The rates where `processes` with equally many ranks are joined by an emulated link, which the
/// ranks of a process share. An axis whose lines are inside a process keeps kThreadRates.
AxisRates link_rates(const LinkLimit& link, const Mesh& mesh, int processes);
/// The latency of the axes whose lines leave a process.
PerAxis<double> link_latency(const LinkLimit& link, const Mesh& mesh, int processes);

/// How fast ranks send. The rate is in bytes a second, 0: takes no time.
struct LinkSpeed {
  double rate = 0;
  double latency = 0;
};

struct MeshRequest {
  Mesh axes = {};
  ZeroPolicy zero = {};  ///< reduce kAuto: once per step if that fits
  bool sequence_parallel = false;
  /// Ranks that keep shards of a layer exchange sums of squares in the update.
  bool trust_ratios = false;
  /// Instead of gradients, replicas send the signs of what they update by, in the update. With
  /// ZeRO, those that share one set of shards add gradients, and send the signs to other groups.
  bool sends_signs = false;
  double signs_per_step = 1;  ///< how often; replicas send nothing in other steps
  /// Replicas add no gradients, and average their weights after so many steps; 0: they add them.
  std::int64_t outer_every = 0;
  bool reads_in_place = true;  ///< as for shard_bytes(): false where processes send gradients
  AxisRates rates = kThreadRates;
  /// seconds from the departure of a message's last byte to its arrival, on axes between processes;
  /// sums of tensor-parallel ranks are counted without it
  PerAxis<double> latency = {};
  /// With hybrid sharding, if not those of the axis dp: of ranks that share one set of shards, and
  /// of ranks that keep the same shard.
  std::optional<LinkSpeed> shard_link = {}, replica_link = {};

  LinkSpeed in_group() const { return shard_link.value_or(data_link()); }
  LinkSpeed between_groups() const { return replica_link.value_or(data_link()); }
  LinkSpeed data_link() const { return {rates[Axis::kData], latency[Axis::kData]}; }

  /// The ranks that make an update together.
  Mesh update_mesh() const { return outer_every > 0 ? one_replica(axes) : axes; }
};

MeshRequest mesh_request(const MeshOptions& options);

/// Bytes that each of n ranks sends to sum whole tensors of `bytes`: 2 (n - 1) / n of them.
double all_reduce_bytes(double bytes, int ranks);

/// Bytes that a rank sends for one layer when replicas ...
struct ReplicaTraffic {
  double reduce = 0;  ///< sum its gradients once, inside a shard group if signs are sent
  double signs = 0;   ///< average signs
  double fetch = 0;   ///< gather its weights once
  double gather = 0;  ///< exchange its updated weights
};
ReplicaTraffic replica_traffic(const ShardBytes& layer, const ShardLayout& layout,
                               bool sends_signs = false);

/// Bytes that a rank sends for one layer, in an average step, to average weights over replicas.
double outer_traffic(const ShardBytes& layer, const MeshRequest& mesh);

/// The same in seconds, for the simulator.
CollectiveSeconds collective_seconds(const CostTable& costs, const ShardLayout& layout,
                                     const MeshRequest& mesh);

/// Adds the time of the mesh: forwards and backwards wait for the sums of tensor-parallel ranks and
/// for what ranks with parts of the sequence send, transfers between stages take the axis' rate
/// unless they were measured, and updates of sharded states take their share of the time.
CostTable with_mesh_seconds(CostTable costs, const MeshRequest& request);

struct AxisTraffic {
  double bytes = 0;
  double seconds = 0;
};

/// Pipeline: activations, gradients, tied weights. Data: gradients, weights of ZeRO. Context:
/// keys, values or heads of attention. Tensor: sums inside layers.
using RankTraffic = PerAxis<AxisTraffic>;

struct Communication {
  /// ranks of the pipeline; each represents all of its replicas
  std::vector<RankTraffic> ranks;
  PerAxis<double> exposed_seconds;
};

/// The traffic of a training step; `costs` are without mesh seconds.
Communication communication_of(const StepPlan& steps, int micro_batches, const CostTable& costs,
                               const MeshRequest& mesh, const TierSeconds& tier_seconds = {},
                               const RecordedPrograms& recorded = {});

}  // namespace strata
