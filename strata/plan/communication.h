/// Reckons what ranks exchange along each axis of the mesh: bytes, seconds, and how much of a step it
/// explains. Beside the pipeline the planner knows the axes as replicas and what they shard, and as
/// tensor-parallel ranks.
///
/// A cost table is that of one tensor-parallel rank and one replica's part of the mini-batch. Exposed
/// is what the step would be shorter by if the axis took no time: work that hides behind compute isn't
/// in it.
///
/// Units  bytes that one rank sends; seconds of a step; rates in bytes a second, 0: takes no time.
#pragma once

#include <cstdint>
#include <vector>

#include "strata/plan/plan_options.h"
#include "strata/plan/shard_bytes.h"
#include "strata/plan/simulator.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/step_plan.h"

namespace strata {

struct AxisRates {
  double pp = 0;
  double dp = 0;
  double tp = 0;
};

/// Ranks of one process hand values over and read each other's memory; between processes bytes are
/// copied through sockets. Assumed, not measured.
inline constexpr AxisRates kThreadRates{.pp = 0, .dp = 5e9, .tp = 5e9};
inline constexpr AxisRates kProcessRates{.pp = 1e9, .dp = 1e9, .tp = 1e9};

struct MeshRequest {
  int dp = 1;
  int tp = 1;
  ZeroPolicy zero = {};  ///< reduce kAuto: once if that fits
  bool sequence_parallel = false;
  bool reads_in_place = true;  ///< as in shard_bytes(): false where processes send gradients
  AxisRates rates = kThreadRates;
};

MeshRequest mesh_request(const MeshOptions& options);

/// Bytes that a rank sends to sum whole tensors of `bytes` among n ranks: 2 (n - 1) / n of them.
double all_reduce_bytes(double bytes, int ranks);

/// Bytes that a rank sends for a layer when replicas ...
struct ReplicaTraffic {
  double reduce = 0;  ///< add its gradients once
  double fetch = 0;   ///< collect its weights once
  double gather = 0;  ///< exchange its updated weights
};
ReplicaTraffic replica_traffic(const ShardBytes& layer, const ShardLayout& layout);

/// The same in seconds, for the simulator.
CollectiveSeconds collective_seconds(const CostTable& costs, const ShardLayout& layout,
                                     double rate);

/// Adds what the mesh costs in time: sums of tensor-parallel ranks to forwards and backwards, which
/// wait for them; transfers between stages at the axis' rate unless they were measured; updates of
/// sharded states take a part of their time.
CostTable with_mesh_seconds(CostTable costs, const MeshRequest& request);

struct AxisTraffic {
  double bytes = 0;
  double seconds = 0;
};

struct RankTraffic {
  AxisTraffic pp;  ///< activations, gradients, tied weights
  AxisTraffic dp;  ///< gradients, weights of ZeRO
  AxisTraffic tp;  ///< sums inside layers
};

struct Communication {
  std::vector<RankTraffic> ranks;  ///< of the pipeline; each stands for its replicas
  double exposed_pp_seconds = 0;
  double exposed_dp_seconds = 0;
  double exposed_tp_seconds = 0;
};

/// Of a training step; `costs` without mesh seconds.
Communication communication_of(const StepPlan& steps, int micro_batches, const CostTable& costs,
                               const MeshRequest& mesh, const LaneSeconds& lanes = {},
                               const RecordedPrograms& recorded = {});

}  // namespace strata
