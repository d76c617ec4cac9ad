#include "strata/plan/search/mesh_check.h"

#include <gtest/gtest.h>

#include "strata/base/errors.h"

namespace strata {
namespace {

// The fix of the refusal; empty if the mesh is accepted.
std::string fix_of(const MeshOptions& mesh, const MeshLimits& limits) {
  try {
    check_mesh(mesh, limits);
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().operation, "plan.mesh");
    EXPECT_FALSE(error.text().expected.empty());
    EXPECT_FALSE(error.text().got.empty());
    return error.text().fix;
  }
  return "";
}

const MeshLimits kLimits{.mini_batch = 32, .layers = 14, .heads = 12, .context = 256};

TEST(MeshCheck, AcceptsMeshOf32RanksFromArticle) {
  const MeshOptions mesh{.axes = {{Axis::kPipeline, 4}, {Axis::kData, 2}, {Axis::kTensor, 4}},
                         .zero = {.stage = 3},
                         .sequence_parallel = true};
  MeshLimits limits = kLimits;
  limits.world = 32;
  EXPECT_EQ(fix_of(mesh, limits), "");
  EXPECT_EQ(fix_of(mesh, {}), "");  // without known limits nothing is checked
}

TEST(MeshCheck, NamesNearestMeshOfWorldSize) {
  MeshLimits limits = kLimits;
  limits.world = 16;
  EXPECT_EQ(fix_of({.axes = {{Axis::kPipeline, 4}, {Axis::kData, 2}, {Axis::kTensor, 4}}}, limits),
            "set mesh.dp=1, or start 32 ranks");
  EXPECT_EQ(fix_of({.axes = {{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kTensor, 2}}}, limits),
            "set mesh.dp=4, or start 8 ranks");
  limits.world = 3;
  EXPECT_EQ(fix_of({.axes = {{Axis::kPipeline, 2}, {Axis::kData, 2}}}, limits),
            "set mesh.pp=3 and mesh.dp=1, or start 4 ranks");
  limits = {.mini_batch = 1, .layers = 2, .heads = 2, .world = 7};  // no mesh has 7 ranks
  EXPECT_EQ(fix_of({.axes = {{Axis::kPipeline, 2}}}, limits), "start 2 ranks");
  // cp 2 would need chunks of 2 tokens for 4 tensor-parallel ranks.
  limits = {.mini_batch = 1, .layers = 1, .heads = 4, .context = 8, .world = 8};
  EXPECT_EQ(fix_of({.axes = {{Axis::kTensor, 4}}, .sequence_parallel = true}, limits),
            "start 4 ranks");
}

TEST(MeshCheck, FixesOfWrongWorldSizeAreLegal) {
  for (int world = 1; world <= 24; ++world) {
    for (const Mesh& mesh : legal_meshes(world, 1, kLimits)) {
      EXPECT_EQ(mesh.size(), world);
      MeshLimits limits = kLimits;
      limits.world = world;
      EXPECT_EQ(fix_of({.axes = mesh}, limits), "");
    }
  }
}

TEST(MeshCheck, CountsRanksOfLargestAxesWithoutOverflow) {
  MeshOptions mesh;
  for (const AxisInfo& axis : kAxes) mesh.axes[axis.id] = axis.most;
  EXPECT_EQ(fix_of(mesh, kLimits), "set mesh.pp, mesh.dp, mesh.cp or mesh.tp to less");
}

TEST(MeshCheck, RequiresSampleForEveryReplica) {
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 33}}}, kLimits), "set mesh.dp=32");
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 5}}}, kLimits), "");  // uneven shares are fine
}

TEST(MeshCheck, RequiresLayerForEveryStage) {
  EXPECT_EQ(fix_of({.axes = {{Axis::kPipeline, 15}}}, kLimits), "set mesh.pp=14");
  EXPECT_EQ(
      fix_of(
          {.axes = {{Axis::kPipeline, 5}}, .virtual_stages = 3, .schedule = ScheduleKind::kGpipe},
          kLimits),
      "set mesh.pp=4");
  EXPECT_EQ(fix_of({.virtual_stages = 15, .schedule = ScheduleKind::kGpipe}, kLimits),
            "set mesh.virtual_stages=1");
}

TEST(MeshCheck, RequiresMatchingScheduleForVirtualStages) {
  EXPECT_EQ(fix_of({.virtual_stages = 2}, kLimits), "set mesh.schedule=interleaved");
  EXPECT_EQ(fix_of({.virtual_stages = 2, .schedule = ScheduleKind::kZbH1}, kLimits),
            "set mesh.virtual_stages=1");
  EXPECT_EQ(fix_of({.virtual_stages = 3, .schedule = ScheduleKind::kZbv}, kLimits),
            "set mesh.virtual_stages=2");
  EXPECT_EQ(fix_of({.schedule = ScheduleKind::kFile}, kLimits), "set mesh.schedule_file to one");
  EXPECT_EQ(fix_of({.virtual_stages = 2, .schedule = ScheduleKind::kInterleaved}, kLimits), "");
}

TEST(MeshCheck, RequiresShardGroupsToDivideReplicas) {
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 8}}, .zero = {.stage = 1, .shard_ranks = 4}}, kLimits),
            "");
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 8}}, .zero = {.stage = 1, .shard_ranks = 7}}, kLimits),
            "set mesh.shard_ranks=8");
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 2}}, .zero = {.stage = 1, .shard_ranks = 4}}, kLimits),
            "set mesh.shard_ranks=2");
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 8}}, .zero = {.shard_ranks = 4}}, kLimits),
            "set mesh.zero=1");
}

TEST(MeshCheck, RequiresShardedGradientsToReduceEachMicroBatch) {
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 2}}, .zero = {.stage = 1, .reduce = ReduceMode::kEach}},
                   kLimits),
            "set mesh.reduce=once");
  EXPECT_EQ(fix_of({.axes = {{Axis::kData, 2}}, .zero = {.stage = 2, .reduce = ReduceMode::kEach}},
                   kLimits),
            "");
}

TEST(MeshCheck, RequiresTensorRanksToDivideHeadsAndTokens) {
  EXPECT_EQ(fix_of({.axes = {{Axis::kTensor, 5}}}, kLimits), "set mesh.tp=4");
  MeshLimits grouped = kLimits;
  grouped.kv_heads = 2;
  EXPECT_EQ(fix_of({.axes = {{Axis::kTensor, 4}}}, grouped), "set mesh.tp=2");
  EXPECT_EQ(fix_of({.sequence_parallel = true}, kLimits), "set mesh.sequence_parallel=false");
  EXPECT_EQ(fix_of({.axes = {{Axis::kTensor, 3}}, .sequence_parallel = true}, kLimits),
            "set mesh.sequence_parallel=false");
}

TEST(MeshCheck, RequiresContextRanksToDivideTokensAndHeads) {
  const auto parts = [](int ranks, int tp = 1) {
    return MeshOptions{.axes = {{Axis::kContext, ranks}, {Axis::kTensor, tp}}};
  };
  EXPECT_EQ(fix_of(parts(128), kLimits), "");
  EXPECT_EQ(fix_of(parts(3), kLimits), "set mesh.cp=1");
  MeshOptions blocks = parts(2);
  blocks.cp_block = 32;
  EXPECT_EQ(fix_of(blocks, kLimits), "");
  blocks.cp_block = 48;
  EXPECT_EQ(fix_of(blocks, kLimits), "set mesh.cp_block=0");
  MeshOptions exchange = parts(4, 3);
  exchange.cp_exchange = ContextExchange::kUlysses;
  MeshLimits limits = kLimits;
  limits.kv_heads = 12;
  EXPECT_EQ(fix_of(exchange, limits), "");
  exchange.axes[Axis::kContext] = 8;
  EXPECT_EQ(fix_of(exchange, limits), "set mesh.cp_exchange=ring");
  exchange.axes[Axis::kContext] = 2;
  exchange.cp_block = 32;
  EXPECT_EQ(fix_of(exchange, limits), "set mesh.cp_block=0");
  MeshOptions sequence = parts(2, 4);
  sequence.sequence_parallel = true;
  EXPECT_EQ(fix_of(sequence, kLimits), "");
  limits.context = 8;
  EXPECT_EQ(fix_of(sequence, limits), "set mesh.cp=1");  // chunks of 2 tokens for 4 ranks
  exchange = {.cp_exchange = ContextExchange::kUlysses};
  EXPECT_EQ(fix_of(exchange, kLimits), "set mesh.cp_exchange=ring");
  limits = kLimits;
  limits.has_tokens = false;
  EXPECT_EQ(fix_of(parts(2), limits), "set mesh.cp=1, and mesh.dp or mesh.pp instead");
  EXPECT_EQ(fix_of({.cp_block = 8}, limits), "set mesh.cp_block=0");
  MeshOptions shards = parts(2);
  shards.axes[Axis::kData] = 3;
  shards.zero = {.stage = 1, .shard_ranks = 6};
  EXPECT_EQ(fix_of(shards, kLimits), "");
}

TEST(MeshCheck, ErrorNamesPlaceOfField) {
  try {
    check_mesh({.axes = {{Axis::kData, 33}}}, kLimits,
               [](const std::string& field) { return field + "@r.yaml:4:2"; });
    FAIL() << "accepted";
  } catch (const UserError& error) {
    EXPECT_EQ(error.text().where, "mesh.dp@r.yaml:4:2");
  }
}

TEST(MeshCheck, SparsePatternsAreRefusedInARing) {
  MeshLimits limits = kLimits;
  limits.kv_heads = 4;
  limits.in_ring = false;
  MeshOptions mesh;
  mesh.axes[Axis::kContext] = 2;
  EXPECT_EQ(fix_of(mesh, limits), "set mesh.cp_exchange=ulysses");
  EXPECT_FALSE(divides_tokens(mesh, limits));
  mesh.cp_exchange = ContextExchange::kUlysses;
  check_mesh(mesh, limits);
  EXPECT_TRUE(divides_tokens(mesh, limits));
  mesh.axes[Axis::kContext] = 8;  // more than heads of keys
  EXPECT_EQ(fix_of(mesh, limits), "set mesh.cp=4");
  MeshOptions blocks;
  blocks.cp_block = 16;
  EXPECT_EQ(fix_of(blocks, limits), "set mesh.cp_block=0");
}

}  // namespace
}  // namespace strata
