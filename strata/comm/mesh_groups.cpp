#include "strata/comm/mesh_groups.h"

#include "strata/base/errors.h"

namespace strata {

MeshGroups make_mesh_groups(const Group& world, const Mesh& mesh, int shard_ranks) {
  STRATA_CHECK_EQ(world.size(), mesh.size(), "comm.make_mesh_groups");
  const int rank = world.rank(), shards = shard_ranks == 0 ? mesh.dp : shard_ranks;
  STRATA_CHECK_EQ(mesh.dp % shards, 0, "comm.make_mesh_groups");
  const Group dp = world.subgroup(mesh.dp_line(rank), "dp");
  std::vector<int> shard, replica;
  for (int i = 0; i < mesh.dp; ++i) {
    if (i / shards == dp.rank() / shards) shard.push_back(i);
    if (i % shards == dp.rank() % shards) replica.push_back(i);
  }
  return {.mesh = mesh,
          .world = world,
          .pp = world.subgroup(mesh.pp_line(rank), "pp"),
          .dp = dp,
          .tp = world.subgroup(mesh.tp_line(rank), "tp"),
          .shard = dp.subgroup(shard, "shard"),
          .replica = dp.subgroup(replica, "replica")};
}

}  // namespace strata
