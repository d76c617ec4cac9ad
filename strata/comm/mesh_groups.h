/// Makes the groups that a rank of a mesh takes part in.
///
/// Shapes  replicas that share one set of ZeRO shards are neighbours on the dp axis (hybrid
///         sharding): `shard` joins them, `replica` joins the ranks that hold the same shard.
#pragma once

#include "strata/comm/group.h"
#include "strata/schedule/mesh.h"

namespace strata {

struct MeshGroups {
  Mesh mesh;
  Group world;
  Group pp;       ///< stages of one replica
  Group dp;       ///< replicas of one slice of one stage
  Group tp;       ///< slices of one stage
  Group shard;    ///< part of dp
  Group replica;  ///< part of dp, across shard groups
};

/// `shard_ranks` divides mesh.dp; 0: all of dp. InternalError if the world has another size.
MeshGroups make_mesh_groups(const Group& world, const Mesh& mesh, int shard_ranks = 0);

}  // namespace strata
