// Tests training with LAMB: the same bits for any cut, in every ZeRO stage and after a resume, and
// close to them with divided weights. lamb_formulas_test.cpp and tests/python/pipeline_test.py
// compare it with the formulas.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "strata/base/scratch_folder.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/rank_states_test.h"

namespace strata {
namespace {

MeshCase lamb_case(DecoderKind kind = DecoderKind::kGpt) {
  return matrices_case(OptimizerKind::kLamb, kind);
}

TEST(LambTraining, DiffersFromAdamWInMatricesAlone) {
  MeshCase c = lamb_case();
  c.steps = 1;  // later losses depend on all weights
  const MeshRecord lamb = train_on_mesh(c);
  c.optimizer = OptimizerKind::kAdamW;
  const MeshRecord adam = train_on_mesh(c);
  int matrices = 0;
  for (const auto& [name, weight] : lamb.weights) {
    EXPECT_EQ(!at::equal(weight, adam.weights.at(name)), weight.dim() == 2) << name;
    matrices += weight.dim() == 2 ? 1 : 0;
  }
  EXPECT_GT(matrices, 8);
  for (const auto& [name, slot] : lamb.slots)
    EXPECT_TRUE(at::equal(slot, adam.slots.at(name))) << name;
}

TEST(LambTraining, HasSameBitsForAnyCut) {
  for (const bool tie : {false, true}) {
    MeshCase c = lamb_case();
    c.model.tie = tie;
    c.model.dropout = 0.1;
    expect_same_bits_for_any_cut(c);
  }
}

TEST(LambTraining, HasSameBitsInEveryZeroStage) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int replicas : {2, 3}) {
      MeshCase c = lamb_case();
      c.precision = precision;
      c.mini_batch = 12;
      c.mesh[Axis::kData] = replicas;
      expect_same_bits_in_every_zero_stage(c);
    }
}

// A layer has fewer blocks than ranks, so some keep none of it.
TEST(LambTraining, HasSameBitsWithHybridAndEmptyShards) {
  MeshCase c = lamb_case();
  c.mini_batch = 12;
  c.micro_batch = 1;
  c.mesh[Axis::kData] = 6;
  const MeshRecord plain = train_on_mesh(c);
  for (const int shard_ranks : {0, 2, 3}) {
    c.zero = 3;
    c.shard_ranks = shard_ranks;
    SCOPED_TRACE(testing::Message() << c);
    expect_same_bits(train_on_mesh(c), plain);
  }
}

TEST(LambTraining, HasSameBitsWithPartsOfSamples) {
  MeshCase c = lamb_case();
  c.mesh[Axis::kContext] = 2;
  expect_same_bits_in_every_zero_stage(c);
}

TEST(LambTraining, DividedWeightsLearnTheSame) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama})
    for (const int zero : {0, 3}) {
      MeshCase c = lamb_case(kind);
      const MeshRecord alone = train_on_mesh(c);
      c.mesh[Axis::kTensor] = 2;
      c.mesh[Axis::kData] = zero > 0 ? 2 : 1;
      c.zero = zero;
      SCOPED_TRACE(testing::Message() << c);
      expect_close(train_on_mesh(c), alone, 1e-5, 1e-4);
    }
}

// The ranks that hold slices of a layer must move undivided weights by the same bits.
TEST(LambTraining, TensorParallelRanksStayEqual) {
  for (const bool sequence : {false, true}) {
    MeshCase c = lamb_case();
    c.mesh[Axis::kTensor] = 2;
    c.sequence = sequence;
    expect_ranks_keep_equal_states(c);
  }
}

TEST(LambTraining, ResumedRunHasBitsOfUninterruptedOneOnAnyMesh) {
  const ScratchFolder folder;
  MeshCase c = lamb_case();
  c.mesh[Axis::kData] = 2;
  c.zero = 2;
  const MeshRecord whole = train_and_save(c, folder.path("saved"), 5, 3);
  c.zero = 0;
  c.mesh[Axis::kPipeline] = 2;
  expect_resumed(
      train_and_save(c, folder.path("again"), 5, 100, checkpoint_at(folder.path("saved"), 3)),
      whole);
}

TEST(LambTraining, SkippedStepChangesNoState) {
  MeshCase c = lamb_case();
  c.precision = at::kHalf;
  c.mesh[Axis::kData] = 2;
  c.zero = 1;
  expect_skipped_step_changes_no_state(c, 1);
}

}  // namespace
}  // namespace strata
