// Tests training with 1-bit LAMB: LAMB until the freeze step, then the same bits for any cut, and
// states that survive a save, also with another number of replicas.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/reader.h"
#include "strata/optim/one_bit_lamb.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/rank_states_test.h"

namespace strata {
namespace {

constexpr std::int64_t kFreeze = 3;

MeshCase one_bit_case(int replicas, int steps = 8) {
  MeshCase c;
  c.model = {.layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16, .dropout = 0.1};
  c.mesh[Axis::kData] = replicas;
  c.optimizer = OptimizerKind::kOneBitLamb;
  c.steps = steps;
  return c;
}

void freeze(TrainerOptions& options) {
  options.optimizer.freeze_step = kFreeze;
  options.optimizer.epsilon = 1e-6;
  // Limits would hide differences of factors.
  options.optimizer.factor_max = 100;
  options.optimizer.factor_threshold = 0.9;
}

MeshRecord train(const MeshCase& c) { return train_on_mesh(c, freeze); }

MeshRecord train_frozen(const MeshCase& c, const std::string& folder, int steps, int save_every,
                        const std::string& from = "") {
  return train_and_save(c, folder, steps, save_every, from, freeze);
}

bool is_of_signs(const std::string& name) {
  return name.find("error") != std::string::npos || name.ends_with(kFreshVariance) ||
         name.ends_with(kFrozenRatio);
}

TEST(OneBitLambTraining, IsLambUntilFreezeStep) {
  for (const int replicas : {1, 3}) {
    MeshCase c = one_bit_case(replicas, kFreeze);
    c.mini_batch = 12;
    const MeshRecord run = train(c);
    c.optimizer = OptimizerKind::kLamb;
    const MeshRecord lamb = train(c);
    EXPECT_EQ(run.losses, lamb.losses);
    for (const auto& [name, weight] : lamb.weights)
      EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
    int ratios = 0;
    for (const auto& [name, slot] : run.slots) {
      if (!is_of_signs(name)) EXPECT_TRUE(at::equal(slot, lamb.slots.at(name))) << name;
      if (!name.ends_with(kFrozenRatio)) continue;
      ++ratios;
      EXPECT_GT(slot[0].item<float>(), 0) << name;
      EXPECT_EQ(slot[1].item<float>(), 1) << name;
    }
    EXPECT_GT(ratios, 8);
  }
}

TEST(OneBitLambTraining, KeepsVariancesAndMeanRatiosAfterFreezeStep) {
  const MeshRecord frozen = train(one_bit_case(2, kFreeze)), later = train(one_bit_case(2));
  int moved = 0;
  for (const auto& [name, slot] : later.slots) {
    const at::Tensor& before = frozen.slots.at(name);
    if (name.ends_with("exp_avg_sq")) EXPECT_TRUE(at::equal(slot, before)) << name;
    if (!name.ends_with(kFrozenRatio)) continue;
    EXPECT_EQ(slot[0].item<float>(), before[0].item<float>()) << name;
    EXPECT_GE(slot[1].item<float>(), 0.5) << name;
    moved += slot[1].item<float>() != 1 ? 1 : 0;
  }
  EXPECT_GT(moved, 8);
}

TEST(OneBitLambTraining, HasSameBitsForAnyCut) {
  for (const bool tie : {false, true}) {
    MeshCase one = one_bit_case(2, 6);
    one.model.tie = tie;
    expect_same_bits_for_any_cut(one, freeze);
  }
}

TEST(OneBitLambTraining, RunsInSixteenBits) {
  for (const at::ScalarType precision : {at::kBFloat16, at::kHalf}) {
    MeshCase c = one_bit_case(2);
    c.precision = precision;
    const MeshRecord run = train(c);
    c.precision = at::kFloat;
    const MeshRecord fp32 = train(c);
    for (std::size_t i = 0; i < run.losses.size(); ++i)
      EXPECT_NEAR(run.losses[i], fp32.losses[i], 0.05 * fp32.losses[i]) << precision << ' ' << i;
    MeshCase cut = c;
    cut.precision = precision;
    cut.mesh[Axis::kPipeline] = 2;
    expect_same_bits(train(cut), run);
  }
}

// Every replica and slice of undivided weights must move by the same bits, and all slices of a
// weight by one factor.
TEST(OneBitLambTraining, TensorParallelRanksStayEqual) {
  for (const bool sequence : {false, true}) {
    MeshCase c = one_bit_case(2);
    c.mesh[Axis::kTensor] = 2;
    c.sequence = sequence;
    expect_ranks_keep_equal_states(c, freeze);
  }
}

TEST(OneBitLambTraining, DividedSlicesLearnTheSame) {
  MeshCase c = one_bit_case(2);
  c.model.dropout = 0;
  const MeshRecord alone = train(c);
  c.mesh[Axis::kTensor] = 2;
  const MeshRecord divided = train(c);
  // The scales are those of other buckets: only the losses are close.
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    EXPECT_NEAR(divided.losses[i], alone.losses[i], 0.05 * alone.losses[i]) << i;
}

// Without messages a factor does not depend on how weights are divided. Slices of uneven widths end
// in padding, which has no factor.
TEST(OneBitLambTraining, DividedWeightsOfOneReplicaLearnTheSame) {
  MeshCase c = one_bit_case(1);
  c.model = {.kind = DecoderKind::kLlama,
             .layers = 2,
             .width = 48,
             .heads = 3,
             .vocab = 50,
             .context = 16,
             .kv_heads = 3,
             .mlp_width = 40};
  const MeshRecord alone = train(c);
  c.mesh[Axis::kTensor] = 3;
  const MeshRecord divided = train(c);
  expect_close(divided, alone, 1e-4, 1e-3);
  for (const auto& [name, slot] : divided.slots)
    if (name.ends_with(kFrozenRatio))
      EXPECT_LE((slot - alone.slots.at(name)).abs().max().item<float>(), 2e-3f) << name;
}

TEST(OneBitLambTraining, ResumedRunHasBitsOfUninterruptedOne) {
  const ScratchFolder folder;
  MeshCase c = one_bit_case(2, 9);
  const MeshRecord whole = train(c);
  // Saves change nothing.
  expect_same_bits(train_frozen(c, folder.path("saved"), 9, 1), whole);
  for (const int saved : {2, 3, 6}) {  // before the freeze step, at it and after it
    MeshCase cut = c;
    cut.mesh[Axis::kPipeline] = 2;
    expect_resumed(train_frozen(cut, folder.path("again" + std::to_string(saved)), 9, 100,
                                checkpoint_at(folder.path("saved"), saved)),
                   whole);
  }
}

TEST(OneBitLambTraining, OtherReplicasKeepRatiosAndBeginWithMeanErrors) {
  const ScratchFolder folder;
  MeshCase c = one_bit_case(4, 6);
  train_frozen(c, folder.path("four"), 6, 6);
  const CheckpointReader saved = CheckpointReader::open(folder.path("four"));
  const double uninterrupted = train(one_bit_case(4, 9)).losses.back();
  for (const int replicas : {1, 2, 3}) {
    c.mesh[Axis::kData] = replicas;
    c.mini_batch = 12;
    const MeshRecord loaded =
        train_frozen(c, folder.path("to" + std::to_string(replicas)), 6, 100, folder.path("four"));
    int ratios = 0;
    for (const auto& [name, slot] : loaded.slots) {
      if (name.find(kWorkerError) != std::string::npos) continue;
      EXPECT_TRUE(at::equal(slot, saved.tensor(name))) << name;
      ratios += name.ends_with(kFrozenRatio) ? 1 : 0;
    }
    EXPECT_GT(ratios, 8);
    const MeshRecord trained =
        train_frozen(c, folder.path("on" + std::to_string(replicas)), 9, 100, folder.path("four"));
    EXPECT_EQ(trained.losses.size(), 3u);
    for (const double loss : trained.losses) EXPECT_NEAR(loss, uninterrupted, 0.1 * uninterrupted);
  }
}

// A gradient that overflows skips the update on every replica.
TEST(OneBitLambTraining, SkippedStepChangesNoState) {
  MeshCase c = one_bit_case(2);
  c.precision = at::kHalf;
  expect_skipped_step_changes_no_state(c, 6, freeze);
}

}  // namespace
}  // namespace strata
