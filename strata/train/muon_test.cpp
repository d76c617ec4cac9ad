// Tests training with Muon: the same bits for any cut and in every ZeRO stage, and close to them
// with divided matrices. tests/python/pipeline_test.py compares it with PyTorch.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

MeshCase muon_case(DecoderKind kind = DecoderKind::kGpt) {
  return matrices_case(OptimizerKind::kMuon, kind);
}

TEST(MuonTraining, DiffersFromAdamWInHiddenMatricesAlone) {
  MeshCase c = muon_case();
  c.steps = 1;  // later losses depend on all weights
  const MeshRecord muon = train_on_mesh(c);
  c.optimizer = OptimizerKind::kAdamW;
  const MeshRecord adam = train_on_mesh(c);
  int other = 0;
  for (const auto& [name, weight] : muon.weights) {
    const bool hidden = weight.dim() == 2 && name.starts_with("block");
    EXPECT_EQ(!at::equal(weight, adam.weights.at(name)), hidden) << name;
    other += hidden ? 1 : 0;
  }
  EXPECT_EQ(other, 8);
}

TEST(MuonTraining, HasSameBitsForAnyCut) { expect_same_bits_for_any_cut(muon_case()); }

TEST(MuonTraining, HasSameBitsInEveryZeroStage) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int replicas : {2, 3}) {
      MeshCase c = muon_case();
      c.precision = precision;
      c.mini_batch = 12;
      c.mesh[Axis::kData] = replicas;
      expect_same_bits_in_every_zero_stage(c);
    }
}

TEST(MuonTraining, DividedMatricesLearnTheSame) {
  for (const DecoderKind kind : {DecoderKind::kGpt, DecoderKind::kLlama})
    for (const int zero : {0, 3}) {
      MeshCase c = muon_case(kind);
      const MeshRecord alone = train_on_mesh(c);
      c.mesh[Axis::kTensor] = 2;
      c.mesh[Axis::kData] = zero > 0 ? 2 : 1;
      c.zero = zero;
      SCOPED_TRACE(testing::Message() << c);
      expect_close(train_on_mesh(c), alone, 1e-4, 1e-3);
    }
}

}  // namespace
}  // namespace strata
