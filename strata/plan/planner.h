/// Decides how a model trains on given ranks: where it is cut, what is computed twice, in which
/// order, and proves by simulation and ledger that it fits.
///
/// The partitioner proposes cuts, with and without the cap; each is simulated, and the fastest
/// whose ledger fits is the plan. With recompute `auto`, every rank over its budget recomputes the
/// layers that give most bytes back a second, as few as will do. Gradients of replicas are added
/// once a step; with reduce `auto`, where only that fits, after every micro-batch.
///
/// Errors  UserError `[plan.memory]` when nothing fits: the byte table of each rank, and as the fix
/// the
///         nearest settings that fit, or else the smallest budget found to; and all that partition,
///         builders and validator refuse.
#pragma once

#include <string>
#include <vector>

#include "strata/plan/communication.h"
#include "strata/plan/ledger.h"
#include "strata/plan/memory_options.h"
#include "strata/plan/mesh_request.h"
#include "strata/plan/simulator.h"
#include "strata/schedule/builders.h"
#include "strata/schedule/costs.h"
#include "strata/schedule/dataflow.h"

namespace strata {

struct PlanRequest {
  Dataflow dataflow;
  CostTable costs_none;   ///< operations keep all they need for backward
  CostTable costs_cheap;  ///< GELU and norms compute theirs again
  schedule::Shape shape;
  std::string schedule = "1f1b";
  MemoryOptions memory;
  std::int64_t micro_batch = 0;  ///< samples of a full micro-batch; 0: no smaller one is proposed
  MeshRequest mesh = {};         ///< the axes beside the pipeline, whose ranks are the shape's
};

struct Plan {
  schedule::Shape shape;
  MemoryOptions memory;
  CostTable costs;  ///< the one that the recompute mode chose, with the mesh's seconds
  Partition partition;
  std::vector<char> recompute;  ///< per layer
  Schedule schedule = {};       ///< lowered and validated
  Simulation simulation = {};
  Ledger ledger = {};
  MeshRequest mesh = {};
  ShardingRequest sharding = {};     ///< what reduce came to
  std::string reduce_reason = {};    ///< one clause
  Communication communication = {};  ///< only make_plan() fills it
};

/// The table that the recompute mode chooses, without the mesh's seconds.
const CostTable& costs_for(const PlanRequest& request);

Plan make_plan(const PlanRequest& request);

}  // namespace strata
