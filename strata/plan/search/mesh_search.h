/// Finds the fastest mesh for a number of ranks: pipeline x data x tensor, ZeRO, schedule and
/// virtual stages. Reports for every other mesh why it lost.
///
/// Every legal combination is planned like a mesh that the user sets, and compared by the
/// simulator's seconds. Within a thousandth, the first of this order wins: fewer stages, fewer
/// tensor-parallel ranks, less sharding, the simpler schedule. If ranks share devices
/// (shared_devices.h), seconds and memory are those of the shared devices.
///
/// Cost    one proposal per combination: tens for 8 ranks, hundreds for 32.
/// Errors  UserError `[plan.mesh]` if no combination is legal or none fits; it states the least
///         memory that one needs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "strata/plan/search/mesh_check.h"
#include "strata/plan/search/planner.h"

namespace strata {

/// Returns costs and shape of the model under a mesh.
using RequestOf = std::function<PlanRequest(const MeshOptions&)>;

struct MeshTrial {
  MeshOptions mesh;
  bool fits = false;
  double step_seconds = 0;
  std::int64_t peak_bytes = 0;  ///< on the fullest rank
  /// of all ranks on the fullest device; 0: no device is shared
  std::int64_t shared_bytes = 0;
  bool crowded = false;       ///< shared_bytes exceed the device's memory
  std::string budgets = {};   ///< if it does not fit: settings with which it would
  double bubble_seconds = 0;  ///< idle time of a rank without the exposed transfers
  Communication communication = {};
  std::string why = {};  ///< why it lost; of the winner: what it costs
};

struct MeshSearch {
  /// the winner first, then by seconds; meshes that do not fit last
  std::vector<MeshTrial> trials;
  const MeshOptions& best() const { return trials.front().mesh; }
};

/// Searches meshes of requested.rank_count() ranks. Keeps shard_ranks, reduce, sequence_parallel
/// and threads.
MeshSearch search_mesh(const MeshOptions& requested, const MeshLimits& limits,
                       const RequestOf& request_of);

/// Prints the winner and `rows` runners-up, the best of each shape of mesh.
std::string search_text(const MeshSearch& search, int rows = 8);

}  // namespace strata
