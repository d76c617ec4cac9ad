// Tests training with 1-bit Adam: AdamW until the freeze step, then the same bits for any cut, and
// states that survive a save, also with another number of replicas. tests/python/pipeline_test.py
// compares it with PyTorch.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/reader.h"
#include "strata/comm/message.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/rank_states_test.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

constexpr std::int64_t kFreeze = 3;

MeshCase one_bit_case(int replicas, int steps = 8) {
  MeshCase c;
  c.model = {.layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16, .dropout = 0.1};
  c.mesh[Axis::kData] = replicas;
  c.optimizer = OptimizerKind::kOneBitAdam;
  c.steps = steps;
  return c;
}

void freeze(TrainerOptions& options) {
  options.optimizer.freeze_step = kFreeze;
  // AdamW's own epsilon: a large one would hide what division by small roots does.
  options.optimizer.epsilon = 1e-8;
}

MeshRecord train(const MeshCase& c) { return train_on_mesh(c, freeze); }

using OnRank = std::function<void(Trainer& trainer, Group& group)>;
void on_ranks(const MeshCase& c, const OnRank& function) { on_mesh_ranks(c, function, freeze); }

MeshRecord train_frozen(const MeshCase& c, const std::string& folder, int steps, int save_every,
                        const std::string& from = "") {
  return train_and_save(c, folder, steps, save_every, from, freeze);
}

// Without the errors, which AdamW does not have.
void expect_same_weights(const MeshRecord& run, const MeshRecord& reference) {
  EXPECT_EQ(run.losses, reference.losses);
  for (const auto& [name, weight] : reference.weights)
    EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
}

TEST(OneBitTraining, IsAdamWUntilFreezeStep) {
  for (const int replicas : {1, 3}) {
    MeshCase c = one_bit_case(replicas, kFreeze);
    c.mini_batch = 12;
    const MeshRecord run = train(c);
    c.optimizer = OptimizerKind::kAdamW;
    expect_same_weights(run, train(c));
    for (const auto& [name, slot] : run.slots)
      if (name.find("error") != std::string::npos) EXPECT_EQ(slot.abs().max().item<float>(), 0);
  }
}

TEST(OneBitTraining, KeepsVariancesAfterFreezeStep) {
  const MeshRecord frozen = train(one_bit_case(2, kFreeze)), later = train(one_bit_case(2));
  int errors = 0;
  for (const auto& [name, slot] : later.slots) {
    if (name.ends_with("exp_avg_sq")) EXPECT_TRUE(at::equal(slot, frozen.slots.at(name))) << name;
    if (name.ends_with("exp_avg")) EXPECT_FALSE(at::equal(slot, frozen.slots.at(name))) << name;
    if (name.find(kWorkerError) != std::string::npos) {
      ++errors;
      EXPECT_GT(slot.abs().max().item<float>(), 0) << name;
    }
  }
  // Each weight has two, one of each replica, and three other states.
  EXPECT_EQ(errors * 3, (static_cast<int>(later.slots.size()) - errors) * 2);
}

TEST(OneBitTraining, HasSameBitsForAnyCut) {
  for (const bool tie : {false, true}) {
    MeshCase one = one_bit_case(2, 6);
    one.model.tie = tie;
    expect_same_bits_for_any_cut(one, freeze);
  }
}

TEST(OneBitTraining, OneReplicaOmitsNothing) {
  const MeshRecord run = train(one_bit_case(1));
  for (const auto& [name, slot] : run.slots)
    if (name.find("error") != std::string::npos)
      EXPECT_EQ(slot.abs().max().item<float>(), 0) << name;
  // It is AdamW with frozen variances, which stays close for a few steps.
  MeshCase adam = one_bit_case(1);
  adam.optimizer = OptimizerKind::kAdamW;
  EXPECT_NEAR(run.losses.back(), train(adam).losses.back(), 0.2);
}

// Messages of the next layer leave before the average of this one, so latencies overlap.
TEST(OneBitTraining, LayersSendWhileOthersWait) {
  MeshCase c = one_bit_case(2, kFreeze + 1);
  c.model.layers = 4;
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  TrainerOptions options = mesh_options(c);
  freeze(options);
  std::mutex mutex;
  std::vector<int> tags;  // of messages in bytes from rank 0: two for each layer, ascending
  FaultyNetwork network(2, {.fate = [&](const Faults::Sent& sent) {
                          Frame frame;
                          std::memcpy(&frame, sent.header.data(), sizeof frame);
                          const std::lock_guard lock(mutex);
                          if (sent.from == 0 && frame.kind == FrameKind::kMessage &&
                              frame.has_tensor &&
                              frame.dtype == static_cast<std::int8_t>(at::kByte))
                            tags.push_back(frame.address.tag.value);
                          return Faults::Fate::kDeliver;
                        }});
  run_on_two_processes(network, 2, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, options);
    trainer.initialise();
    for (int step = 0; step < c.steps; ++step) trainer.step(mesh_batch(c, step), 1e-2);
  });
  EXPECT_EQ(tags.size(), 2u * static_cast<std::size_t>(model.num_layers()));
  int overtaking = 0;
  for (std::size_t i = 1; i < tags.size(); ++i) overtaking += tags[i] < tags[i - 1] ? 1 : 0;
  EXPECT_EQ(overtaking, model.num_layers() - 1);
}

// Every replica and slice of undivided weights must move by the same bits.
TEST(OneBitTraining, TensorParallelRanksStayEqual) {
  for (const bool sequence : {false, true}) {
    MeshCase c = one_bit_case(2);
    c.mesh[Axis::kTensor] = 2;
    c.sequence = sequence;
    expect_ranks_keep_equal_states(c, freeze);
  }
}

TEST(OneBitTraining, DividedSlicesLearnTheSame) {
  MeshCase c = one_bit_case(2);
  c.model.dropout = 0;
  const MeshRecord alone = train(c);
  c.mesh[Axis::kTensor] = 2;
  const MeshRecord divided = train(c);
  // The scales are those of other buckets: only the losses are close.
  for (std::size_t i = 0; i < alone.losses.size(); ++i)
    EXPECT_NEAR(divided.losses[i], alone.losses[i], 0.05 * alone.losses[i]) << i;
}

TEST(OneBitTraining, RunsInSixteenBits) {
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

// The mini-batch of a step, the same samples for both replicas.
MiniBatch doubled_batch(const MeshCase& c, int step) {
  MeshCase half = c;
  half.mini_batch = c.mini_batch / 2;
  const MiniBatch one = mesh_batch(half, step);
  return {
      .inputs = {at::cat({one.inputs[0], one.inputs[0]}), at::cat({one.inputs[1], one.inputs[1]})},
      .samples = c.mini_batch,
      .valid_tokens = 2 * one.valid_tokens};
}

// Then the norm that replicas compute from their own gradients is that of the sum.
TEST(OneBitTraining, NormIsThatOfSumIfReplicasHaveSameGradients) {
  MeshCase c = one_bit_case(2);
  c.model.dropout = 0;
  std::vector<std::vector<double>> norms(2);
  for (const OptimizerKind kind : {OptimizerKind::kOneBitAdam, OptimizerKind::kAdamW}) {
    c.optimizer = kind;
    on_ranks(c, [&](Trainer& trainer, Group& group) {
      for (int step = 0; step <= kFreeze; ++step) {
        const double norm = trainer.step(doubled_batch(c, step), 1e-2).gradient_norm;
        if (group.rank() == 0) norms[kind == OptimizerKind::kAdamW].push_back(norm);
      }
    });
  }
  // The weights before the first step after the freeze step are the same.
  EXPECT_NEAR(norms[0].back(), norms[1].back(), 1e-6 * norms[1].back());
}

TEST(OneBitTraining, ResumedRunHasBitsOfUninterruptedOne) {
  const ScratchFolder folder;
  MeshCase c = one_bit_case(2, 9);
  const MeshRecord whole = train(c);
  // Saves change nothing.
  expect_same_bits(train_frozen(c, folder.path("saved"), 9, 1), whole);
  for (const int saved : {2, 6}) {  // before the freeze step and after it
    MeshCase cut = c;
    cut.mesh[Axis::kPipeline] = 2;
    expect_resumed(train_frozen(cut, folder.path("again" + std::to_string(saved)), 9, 100,
                                checkpoint_at(folder.path("saved"), saved)),
                   whole);
  }
}

// Slices of uneven widths are padded, and signs have no zero. A run on one rank, which has no
// padding, continues with the same loss.
TEST(OneBitTraining, PaddingOfSlicesStaysZero) {
  const ScratchFolder folder;
  MeshCase c = one_bit_case(2);
  c.model = {.kind = DecoderKind::kLlama,
             .layers = 2,
             .width = 48,
             .heads = 3,
             .vocab = 50,
             .context = 16,
             .kv_heads = 3,
             .mlp_width = 40};
  c.mesh[Axis::kTensor] = 3;
  const std::vector<double> divided = train_frozen(c, folder.path("three"), 8, 7).losses;
  c.mesh[Axis::kTensor] = 1;
  const std::vector<double> whole =
      train_frozen(c, folder.path("one"), 8, 100, folder.path("three")).losses;
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_NEAR(whole[0], divided[7], 1e-6 * divided[7]);
  // Checkpoints have no padding, so its errors must not count in later scales.
  c.mesh[Axis::kTensor] = 3;
  c.steps = 11;
  const MeshRecord all = train(c);
  expect_resumed(train_frozen(c, folder.path("resumed"), 11, 100, folder.path("three")), all);
}

// A gradient that overflows skips the update on every replica, and leaves the errors as they are.
TEST(OneBitTraining, SkippedStepChangesNoState) {
  MeshCase c = one_bit_case(2);
  c.precision = at::kHalf;
  expect_skipped_step_changes_no_state(c, 6, freeze);
}

// The mean of what replicas send is what matters, so new replicas begin with the mean error.
TEST(OneBitTraining, OtherReplicasBeginWithMeanErrors) {
  const ScratchFolder folder;
  MeshCase c = one_bit_case(4, 6);
  train_frozen(c, folder.path("four"), 6, 6);
  const CheckpointReader saved = CheckpointReader::open(folder.path("four"));
  const double uninterrupted = train(one_bit_case(4, 9)).losses.back();
  for (const int replicas : {1, 2, 3, 6}) {
    c.mesh[Axis::kData] = replicas;
    c.mini_batch = 12;
    const MeshRecord loaded =
        train_frozen(c, folder.path("to" + std::to_string(replicas)), 6, 100, folder.path("four"));
    int compared = 0;
    for (const auto& [name, slot] : loaded.slots) {
      const std::size_t at = name.find(kWorkerError);
      if (at == std::string::npos) {
        EXPECT_TRUE(at::equal(slot, saved.tensor(name))) << name;
        continue;
      }
      at::Tensor mean = at::zeros_like(slot);
      for (int i = 0; i < 4; ++i)
        mean.add_(saved.tensor(name.substr(0, at) + kWorkerError + "." + std::to_string(i)));
      mean.div_(4);
      EXPECT_LE((slot - mean).abs().max().item<float>(), 1e-6f) << name;
      ++compared;
    }
    EXPECT_EQ(compared % replicas, 0);
    EXPECT_GT(compared, 0);
    const MeshRecord trained =
        train_frozen(c, folder.path("on" + std::to_string(replicas)), 9, 100, folder.path("four"));
    // The mini-batches are others than those of four replicas, but as random.
    EXPECT_EQ(trained.losses.size(), 3u);
    for (const double loss : trained.losses) EXPECT_NEAR(loss, uninterrupted, 0.1 * uninterrupted);
  }
}

}  // namespace
}  // namespace strata
