#include <gtest/gtest.h>

#include "strata/base/errors.h"
#include "strata/plan/plan_options.h"

namespace strata {
namespace {

TEST(MeshOptions, ReadsMeshOfRecipe) {
  MeshOptions mesh;
  OptionSet set;
  describe(set, "mesh", mesh);
  set.load_yaml("mesh: {pp: 4, virtual_stages: 2, schedule: interleaved, threads: 3}\n", "r.yaml");
  EXPECT_EQ(mesh.axes[Axis::kPipeline], 4);
  EXPECT_EQ(mesh.virtual_stages, 2);
  EXPECT_EQ(mesh.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(mesh.threads, 3);
}

TEST(MeshOptions, ReadsEveryAxisAndZero) {
  MeshOptions mesh;
  OptionSet set;
  describe(set, "mesh", mesh);
  set.load_yaml(
      "mesh: {dp: 2, tp: 4, pp: 4, zero: 3, shard_ranks: 2, reduce: each, sequence_parallel: true}",
      "r.yaml");
  EXPECT_EQ(mesh.axes, (Mesh{{Axis::kPipeline, 4}, {Axis::kData, 2}, {Axis::kTensor, 4}}));
  EXPECT_EQ(mesh.axes.size(), 32);
  EXPECT_EQ(mesh.zero, (ZeroPolicy{.stage = 3, .shard_ranks = 2, .reduce = ReduceMode::kEach}));
  EXPECT_TRUE(mesh.sequence_parallel);
  EXPECT_FALSE(mesh.automatic);
  set.set("mesh.auto=true");
  set.set("mesh.ranks=8");
  EXPECT_TRUE(mesh.automatic);
  EXPECT_EQ(mesh.ranks, 8);
}

TEST(MeshOptions, RejectsZeroRanksAndUnknownSchedules) {
  MeshOptions mesh;
  OptionSet set;
  describe(set, "mesh", mesh);
  for (const AxisInfo& axis : kAxes) {  // beyond int, and beyond 64 bits
    const std::string field = std::string("mesh.") + axis.name + "=";
    EXPECT_THROW(set.set(field + "0"), UserError) << field;
    EXPECT_THROW(set.set(field + "4294967297"), UserError) << field;
    EXPECT_THROW(set.set(field + "99999999999999999999"), UserError) << field;
    set.set(field + std::to_string(axis.most));
    EXPECT_EQ(mesh.axes[axis.id], axis.most);
  }
  EXPECT_THROW(set.set("mesh.schedule=forward"), UserError);
  EXPECT_THROW(set.set("mesh.threads=-1"), UserError);
  EXPECT_THROW(set.set("mesh.zero=4"), UserError);
  EXPECT_THROW(set.set("mesh.reduce=never"), UserError);
}

TEST(MemoryOptions, ReadsBudgetWithUnitAndHasNoneByDefault) {
  MemoryOptions memory;
  OptionSet set;
  describe(set, "memory", memory);
  EXPECT_EQ(memory.device.count, 0);
  EXPECT_EQ(memory.recompute, RecomputeMode::kCheap);
  set.load_yaml("memory: {device: 2GiB, recompute: auto}\n", "r.yaml");
  EXPECT_EQ(memory.device.count, std::int64_t{2} << 30);
  EXPECT_EQ(memory.recompute, RecomputeMode::kAuto);
  EXPECT_THROW(set.set("memory.recompute=some"), UserError);
}

}  // namespace
}  // namespace strata
