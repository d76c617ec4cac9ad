/// Finds the fastest mesh for a number of ranks: pipeline x data x tensor, ZeRO, schedule and
/// virtual stages; and says of every other why it lost.
///
/// Every legal combination is planned like a mesh that the user gives, by the simulator's seconds;
/// within a thousandth the one that comes first wins: fewer stages, fewer tensor-parallel ranks,
/// less sharding, the plainer schedule. Where ranks share devices (shared_devices.h), those seconds are of the
/// devices that there are, and what fits has room on them.
///
/// Cost    a proposal for each combination: tens for 8 ranks, hundreds for 32.
/// Errors  UserError `[plan.mesh]` when no combination is legal or none fits: the least memory that
///         one needs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/plan/mesh_check.h"
#include "strata/plan/planner.h"

namespace strata {

/// Costs and shape of the model under a mesh.
using RequestOf = std::function<PlanRequest(const MeshOptions&)>;

struct MeshTrial {
  MeshOptions mesh;
  bool fits = false;
  double step_seconds = 0;
  std::int64_t peak_bytes = 0;    ///< of the fullest rank
  std::int64_t shared_bytes = 0;  ///< of all ranks on the fullest device; 0: nobody shares one
  bool crowded = false;           ///< they are more than the device has
  std::string budgets = {};       ///< of what doesn't fit: settings under which it would
  double bubble_seconds = 0;      ///< idle time of a rank, the exposed transfers apart
  Communication communication = {};
  std::string why = {};  ///< it lost; of the winner: what it costs
};

struct MeshSearch {
  std::vector<MeshTrial> trials;  ///< the winner first, then by seconds, what doesn't fit last
  const MeshOptions& best() const { return trials.front().mesh; }
};

/// `asked.ranks`, or pp x dp x tp of it, are the ranks; shard_ranks, reduce, sequence_parallel and
/// threads are kept.
MeshSearch search_mesh(const MeshOptions& asked, const MeshLimits& limits,
                       const RequestOf& request_of);

/// The winner and `rows` runners-up, of each shape of the mesh the best.
std::string search_text(const MeshSearch& search, int rows = 8);

}  // namespace strata
