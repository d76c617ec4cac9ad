// Tests training with sparse attention patterns: what no cut, schedule, ZeRO stage or exchange of
// heads may change, and which heads tensor-parallel ranks have. mesh_test.cpp draws random meshes
// with a sliding window.
#include <gtest/gtest.h>

#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

// Six blocks of a sample. All heads have different forms, so a rank must know which heads it has.
MeshCase sparse_case(PatternKind kind) {
  MeshCase c;
  c.model = {.layers = 3,
             .width = 32,
             .heads = 4,
             .vocab = 48,
             .context = 96,
             .attention = {.kind = kind, .block = 16, .window = 64, .forms = 4}};
  if (kind == PatternKind::kBigBird) {
    c.model.attention.window = 32;
    c.model.attention.random_blocks = 1;
    c.model.attention.dense_every = 2;
    c.model.dropout = 0.1;
  } else {
    c.model.kind = DecoderKind::kLlama;
    c.model.kv_heads = 2;
  }
  c.mini_batch = 4;
  return c;
}

class SparseTraining : public testing::TestWithParam<PatternKind> {};

TEST_P(SparseTraining, CutsAndSchedulesChangeNoBit) {
  expect_same_bits_for_any_cut(sparse_case(GetParam()));
}

TEST_P(SparseTraining, ZeroStagesChangeNoBit) {
  MeshCase c = sparse_case(GetParam());
  c.mesh[Axis::kData] = 2;
  expect_same_bits_in_every_zero_stage(c);
}

TEST_P(SparseTraining, RanksThatDivideHeadsOrTokensLearnWhatOneRankLearns) {
  const MeshCase one = sparse_case(GetParam());
  const MeshRecord expected = train_on_mesh(one);
  for (const int tensor : {1, 2})
    for (const bool sequence : {false, true})
      for (const int context : {1, 2}) {
        MeshCase c = one;
        c.mesh[Axis::kTensor] = tensor;
        c.mesh[Axis::kContext] = context;
        c.sequence = sequence && tensor > 1;
        if (context > 1) c.exchange = ContextExchange::kUlysses;
        // With both axes each rank of cp needs a head of keys.
        if (c.model.kv_heads == 2 && tensor * context > 2) continue;
        SCOPED_TRACE(testing::Message() << c);
        expect_close(train_on_mesh(c), expected, 1e-5, 2e-5);
      }
}

TEST_P(SparseTraining, HasOtherLossesThanDenseAttention) {
  MeshCase c = sparse_case(GetParam());
  const MeshRecord sparse = train_on_mesh(c);
  c.model.attention = {};
  EXPECT_NE(sparse.losses, train_on_mesh(c).losses);
}

INSTANTIATE_TEST_SUITE_P(, SparseTraining,
                         testing::Values(PatternKind::kFixed, PatternKind::kBigBird),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace strata
