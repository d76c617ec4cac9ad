// Tests that states of optimizers that send signs with ZeRO survive a save, and fit other numbers
// of shards and of groups.
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/reader.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/train/sign_shards_test.h"

namespace strata {
namespace {

using namespace sign_shards;
using enum OptimizerKind;

TEST(SignShardsResume, ResumedRunHasBitsOfUninterruptedOne) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const at::ScalarType precision : {at::kFloat, at::kBFloat16}) {
      const ScratchFolder folder;
      MeshCase c = shared_case(kind, 2, 2, 1);
      c.precision = precision;
      const MeshRecord whole = train(c);
      // Saves change nothing.
      expect_same_bits(train_and_save(c, folder.path("saved"), kSteps, 1, "", schedule), whole);
      for (const int saved : {2, 6, 8, 11})  // inside a round of 0/1 Adam: 8 and 11
        for (const int zero : {1, 3}) {
          MeshCase cut = c;
          cut.zero = zero;
          cut.mesh[Axis::kPipeline] = 2;
          SCOPED_TRACE(testing::Message() << cut << ", saved after " << saved);
          const std::string again = folder.path(std::to_string(saved) + "-" + std::to_string(zero));
          expect_resumed(train_and_save(cut, again, kSteps, 100,
                                        checkpoint_at(folder.path("saved"), saved), schedule),
                         whole);
        }
    }
}

// Slices of uneven widths are padded, and signs have no zero. Checkpoints have no padding, so its
// errors must not count in later scales, and a run on whole weights continues with the same loss.
TEST(SignShardsResume, PaddingOfSlicesStaysZero) {
  const ScratchFolder folder;
  MeshCase c = shared_case(kOneBitAdam, 2, 2, 2);
  c.model = {.kind = DecoderKind::kLlama,
             .layers = 2,
             .width = 48,
             .heads = 3,
             .vocab = 50,
             .context = 16,
             .kv_heads = 3,
             .mlp_width = 40};
  c.mesh[Axis::kTensor] = 3;
  const std::string saved = folder.path("three");
  const MeshRecord divided = train_and_save(c, saved, kSteps, 7, "", schedule);
  expect_resumed(train_and_save(c, folder.path("resumed"), kSteps, 100, saved, schedule), divided);
  c.mesh[Axis::kTensor] = 1;
  const MeshRecord whole = train_and_save(c, folder.path("one"), 8, 100, saved, schedule);
  ASSERT_EQ(whole.losses.size(), 1u);
  EXPECT_NEAR(whole.losses[0], divided.losses[7], 1e-6 * divided.losses[7]);
}

// A group has the errors of one replica, so states fit any number of shards a group. Signs are then
// those of other parts, and learn alike.
TEST(SignShardsResume, StatesFitOtherNumbersOfShards) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const auto& [before, after] : {std::pair(1, 2), {2, 1}, {2, 3}}) {
      const ScratchFolder folder;
      const auto with = [&](int shards) {
        return shared_case(kind, 2, shards, shards == 1 ? 0 : 2);
      };
      const MeshRecord saved =
          train_and_save(with(before), folder.path("saved"), 8, 8, "", schedule);
      const MeshRecord loaded = train_and_save(with(after), folder.path("loaded"), 8, 100,
                                               folder.path("saved"), schedule);
      SCOPED_TRACE(testing::Message() << name_of(kind) << ' ' << before << " to " << after);
      ASSERT_EQ(loaded.slots.size(), saved.slots.size());
      for (const auto& [name, slot] : saved.slots)
        EXPECT_TRUE(at::equal(loaded.slots.at(name), slot)) << name;
      for (const auto& [name, weight] : saved.weights)
        EXPECT_LE((loaded.weights.at(name) - weight).abs().max().item<float>(), 1e-7f) << name;
      const MeshRecord uninterrupted = train(with(before));
      const MeshRecord trained = train_and_save(with(after), folder.path("trained"), kSteps, 100,
                                                folder.path("saved"), schedule);
      ASSERT_EQ(trained.losses.size(), kSteps - 8u);
      for (std::size_t i = 0; i < trained.losses.size(); ++i)
        EXPECT_NEAR(trained.losses[i], uninterrupted.losses[8 + i],
                    0.02 * uninterrupted.losses[8 + i]);
    }
}

// Only the mean of what groups send matters.
TEST(SignShardsResume, OtherGroupsBeginWithMeanErrors) {
  const ScratchFolder folder;
  train_and_save(shared_case(kOneBitAdam, 4, 1, 0), folder.path("replicas"), 8, 8, "", schedule);
  train_and_save(shared_case(kOneBitAdam, 3, 2, 2), folder.path("groups"), 8, 8, "", schedule);
  for (const auto& [from, count] : {std::pair("replicas", 4), {"groups", 3}}) {
    const CheckpointReader saved = CheckpointReader::open(folder.path(from));
    for (const auto& [groups, shards] : {std::pair(2, 2), {1, 2}, {2, 1}}) {
      const MeshCase c = shared_case(kOneBitAdam, groups, shards, shards == 1 ? 0 : 3);
      const MeshRecord loaded =
          train_and_save(c, folder.path("to"), 8, 100, folder.path(from), schedule);
      int compared = 0;
      for (const auto& [name, slot] : loaded.slots) {
        const std::size_t at = name.find(kWorkerError);
        if (at == std::string::npos) {
          EXPECT_TRUE(at::equal(slot, saved.tensor(name))) << name;
          continue;
        }
        at::Tensor mean = at::zeros_like(slot);
        for (int i = 0; i < count; ++i)
          mean.add_(saved.tensor(name.substr(0, at) + kWorkerError + "." + std::to_string(i)));
        EXPECT_LE((slot - mean.div_(count)).abs().max().item<float>(), 1e-6f) << name;
        ++compared;
      }
      EXPECT_GT(compared, 0);
      EXPECT_EQ(compared % groups, 0);
    }
  }
}

}  // namespace
}  // namespace strata
