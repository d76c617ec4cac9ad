// Tests training with 0/1 Adam: it is AdamW, 1-bit Adam and local steps where its schedule says so,
// with the same bits for any cut, and states that survive a save, also with another number of
// replicas. zero_one_formulas_test.cpp compares it with loops.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <map>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/reader.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/outer_step.h"
#include "strata/train/mesh_run_test.h"
#include "strata/train/rank_states_test.h"

namespace strata {
namespace {

// Updates 1, 2 and 3 sum gradients; 4 to 7, 9, 10 and 13 send signs; 8, 11, 12, 14 and 15 nothing.
constexpr std::int64_t kFreeze = 4;
constexpr int kSteps = 15;

void schedule(TrainerOptions& options) {
  options.optimizer.freeze_step = kFreeze;
  options.optimizer.refresh_doubling = 2;
  options.optimizer.local_doubling = 3;
  options.optimizer.local_most = 3;
  options.optimizer.epsilon = 1e-8;  // AdamW's own
}

MeshCase zero_one_case(int replicas, int steps = kSteps) {
  MeshCase c;
  c.model = {.layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16, .dropout = 0.1};
  c.mesh[Axis::kData] = replicas;
  c.mini_batch = 12;
  c.optimizer = OptimizerKind::kZeroOneAdam;
  c.steps = steps;
  return c;
}

MeshRecord train(const MeshCase& c) { return train_on_mesh(c, schedule); }

void expect_same_weights(const MeshRecord& run, const MeshRecord& reference) {
  EXPECT_EQ(run.losses, reference.losses);
  EXPECT_EQ(run.norms, reference.norms);
  for (const auto& [name, weight] : reference.weights)
    EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
}

TEST(ZeroOneTraining, IsAdamWWhileEveryUpdateSumsGradients) {
  for (const int replicas : {1, 3}) {
    MeshCase c = zero_one_case(replicas, 3);
    const MeshRecord run = train(c);
    c.optimizer = OptimizerKind::kAdamW;
    expect_same_weights(run, train(c));
  }
}

// Bit for bit, before its freeze step and after it.
TEST(ZeroOneTraining, IsOneBitAdamIfEveryUpdateSynchronises) {
  for (const int replicas : {1, 2, 3}) {
    MeshCase c = zero_one_case(replicas, 9);
    const auto always = [](TrainerOptions& options) {
      schedule(options);
      options.optimizer.refresh_doubling = kFreeze;
      options.optimizer.local_most = 1;
    };
    const MeshRecord run = train_on_mesh(c, always);
    c.optimizer = OptimizerKind::kOneBitAdam;
    const MeshRecord one_bit = train_on_mesh(c, always);
    expect_same_bits(run, one_bit);
    EXPECT_EQ(run.slots.size(), one_bit.slots.size());
  }
}

TEST(ZeroOneTraining, RefreshesVariancesWhereItSumsGradients) {
  std::map<std::string, at::Tensor> before;
  on_mesh_ranks(
      zero_one_case(1),
      [&](Trainer& trainer, Group&) {
        for (int step = 1; step <= kSteps; ++step) {
          trainer.step(mesh_batch(zero_one_case(1), step), 1e-2);
          int changed = 0;
          for (const NamedState& slot : trainer.slots()) {
            if (!slot.name.ends_with("exp_avg_sq")) continue;
            at::Tensor& known = before[slot.name];
            changed += known.defined() && at::equal(known, slot.values()) ? 0 : 1;
            known = slot.values().clone();
          }
          EXPECT_EQ(changed > 0, step <= 3) << step;
        }
      },
      schedule);
}

TEST(ZeroOneTraining, SendsWhatItsScheduleSays) {
  std::vector<double> sent(kSteps);
  const MeshCase c = zero_one_case(2);
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          const std::int64_t before = trainer.groups().weights.sent_bytes();
          trainer.step(mesh_batch(c, step), 1e-2);
          if (group.rank() == 0)
            sent[static_cast<std::size_t>(step)] =
                static_cast<double>(trainer.groups().weights.sent_bytes() - before);
        }
      },
      schedule);
  const double whole = sent[0];
  for (const int update : {2, 3}) EXPECT_EQ(sent[update - 1], whole) << update;
  for (const int update : {4, 5, 6, 7, 9, 10, 13})
    EXPECT_NEAR(sent[update - 1], whole / 32, 0.01 * whole) << update;
  for (const int update : {8, 11, 12, 14, 15}) EXPECT_EQ(sent[update - 1], 0) << update;
}

TEST(ZeroOneTraining, HasSameBitsForAnyCut) {
  for (const bool tie : {false, true}) {
    MeshCase one = zero_one_case(2);  // ends inside a round
    one.model.tie = tie;
    expect_same_bits_for_any_cut(one, schedule);
  }
  MeshCase one = zero_one_case(2);
  one.mesh[Axis::kContext] = 2;
  expect_same_bits_for_any_cut(one, schedule);
}

TEST(ZeroOneTraining, RunsInSixteenBits) {
  const MeshRecord fp32 = train(zero_one_case(2));
  for (const at::ScalarType precision : {at::kBFloat16, at::kHalf}) {
    MeshCase c = zero_one_case(2);
    c.precision = precision;
    const MeshRecord run = train(c);
    for (std::size_t i = 0; i < run.losses.size(); ++i)
      EXPECT_NEAR(run.losses[i], fp32.losses[i], 0.05 * fp32.losses[i]) << precision << ' ' << i;
    c.mesh[Axis::kPipeline] = 2;
    expect_same_bits(train(c), run);
  }
}

TEST(ZeroOneTraining, LearnsLikeAdamW) {
  MeshCase c = zero_one_case(2, 30);
  const MeshRecord run = train(c);
  c.optimizer = OptimizerKind::kAdamW;
  const MeshRecord adam = train(c);
  for (std::size_t i = 0; i < run.losses.size(); ++i)
    EXPECT_NEAR(run.losses[i], adam.losses[i], 0.06 * adam.losses[i]) << i;
}

// After a synchronisation all ranks that hold a weight have the same bits, and inside a round those
// of one replica, which assemble() does not compare.
TEST(ZeroOneTraining, RanksThatShareWeightsStayEqual) {
  for (const auto& [axis, steps] : {std::pair(Axis::kTensor, 13),
                                    {Axis::kTensor, 15},
                                    {Axis::kContext, 13},
                                    {Axis::kPipeline, 13}}) {
    MeshCase c = zero_one_case(2, steps);
    c.mesh[axis] = 2;
    const bool synchronised = steps == 13;
    c.steps = steps;
    expect_ranks_keep_equal_states(c, schedule, /*replicas_apart=*/!synchronised);
  }
}

TEST(ZeroOneTraining, ModelIsMeanOfReplicasInsideARound) {
  for (const int parts : {1, 2}) {
    MeshCase c = zero_one_case(3);
    c.mesh[Axis::kContext] = parts;
    const MeshRecord run = train(c);
    int moved = 0;
    for (const auto& [name, weight] : run.weights) {
      const auto of = [&](int replica) {
        return run.slots.at(name + "." + kReplicaWeight + "." + std::to_string(replica));
      };
      at::Tensor mean = of(0).clone();
      for (int i = 1; i < c.mesh.weight_ranks(); ++i) mean.add_(of(i));
      EXPECT_TRUE(at::equal(weight, mean.div_(c.mesh.weight_ranks()))) << name;
      moved += at::equal(of(0), of(1)) ? 0 : 1;
    }
    EXPECT_EQ(moved, static_cast<int>(run.weights.size()));
  }
  for (const auto& [name, slot] : train(zero_one_case(3, 13)).slots)
    EXPECT_EQ(name.find(kReplicaWeight), std::string::npos) << name;
}

TEST(ZeroOneTraining, EvaluationsChangeNothing) {
  MeshCase c = zero_one_case(2);
  c.mesh[Axis::kPipeline] = 2;
  c.model.tie = true;
  const std::vector<MiniBatch> batches{mesh_batch(c, 100)};
  std::vector<double> losses;
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group& group) {
        for (int step = 0; step < kSteps; ++step) {
          const double loss = trainer.step(mesh_batch(c, step), 1e-2).loss;
          trainer.evaluate(batches);
          if (group.rank() == 0) losses.push_back(loss);
        }
      },
      schedule);
  EXPECT_EQ(losses, train(c).losses);
}

TEST(ZeroOneTraining, ResumedRunHasBitsOfUninterruptedOne) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const ScratchFolder folder;
    MeshCase c = zero_one_case(2, 17);
    c.precision = precision;
    const MeshRecord whole = train(c);
    // Saves change nothing.
    expect_same_bits(train_and_save(c, folder.path("saved"), 17, 1, "", schedule), whole);
    for (const int saved : {2, 4, 8, 11, 12, 13, 15}) {
      MeshCase cut = c;
      cut.mesh[Axis::kPipeline] = 2;
      const MeshRecord resumed =
          train_and_save(cut, folder.path("again" + std::to_string(saved)), 17, 100,
                         checkpoint_at(folder.path("saved"), saved), schedule);
      SCOPED_TRACE(saved);
      expect_resumed(resumed, whole);
    }
  }
}

TEST(ZeroOneTraining, ResumesPartsOfSamplesAndSlices) {
  for (const Axis axis : {Axis::kContext, Axis::kTensor}) {
    const ScratchFolder folder;
    MeshCase c = zero_one_case(2, 17);
    c.mesh[axis] = 2;
    const MeshRecord whole = train_and_save(c, folder.path("saved"), 17, 12, "", schedule);
    const MeshRecord resumed = train_and_save(c, folder.path("again"), 17, 100,
                                              checkpoint_at(folder.path("saved"), 12), schedule);
    expect_resumed(resumed, whole);
  }
}

// What replicas have not sent matters by its mean, and so do weights and momenta inside a round.
TEST(ZeroOneTraining, OtherReplicasBeginWithMeans) {
  for (const int saved : {6, 12}) {  // inside a round: 12
    const ScratchFolder folder;
    MeshCase c = zero_one_case(4);
    const MeshRecord before = train_and_save(c, folder.path("four"), saved, saved, "", schedule);
    const CheckpointReader file = CheckpointReader::open(folder.path("four"));
    const double uninterrupted = train(c).losses.back();
    for (const int replicas : {1, 2, 3, 6}) {
      c.mesh[Axis::kData] = replicas;
      const MeshRecord loaded = train_and_save(c, folder.path("to" + std::to_string(replicas)),
                                               saved, 100, folder.path("four"), schedule);
      for (const auto& [name, weight] : before.weights)
        EXPECT_LE((loaded.weights.at(name) - weight).abs().max().item<float>(), 1e-6f) << name;
      int means = 0;
      for (const auto& [name, slot] : loaded.slots) {
        if (file.contains(name) && !file.contains(name.substr(0, name.rfind('.')) + ".1")) {
          EXPECT_TRUE(at::equal(slot, file.tensor(name))) << name;
          continue;
        }
        const std::string stem = name.substr(0, name.rfind('.'));
        at::Tensor mean = file.tensor(stem + ".0").clone();
        for (int i = 1; i < 4; ++i) mean.add_(file.tensor(stem + "." + std::to_string(i)));
        EXPECT_LE((slot - mean.div_(4)).abs().max().item<float>(), 1e-6f) << name;
        means += name.find("exp_avg.") != std::string::npos ? 1 : 0;
      }
      EXPECT_EQ(means > 0, saved == 12);
      const MeshRecord trained = train_and_save(c, folder.path("on" + std::to_string(replicas)),
                                                kSteps, 100, folder.path("four"), schedule);
      for (const double loss : trained.losses)
        EXPECT_NEAR(loss, uninterrupted, 0.1 * uninterrupted) << replicas;
    }
  }
}

// A gradient that overflows on one replica skips the update of all, inside a round, too.
TEST(ZeroOneTraining, SkippedStepChangesNoState) {
  MeshCase c = zero_one_case(2);
  c.precision = at::kHalf;
  const auto states = expect_skipped_step_changes_no_state(c, 11, schedule);
  EXPECT_EQ(states.at("sign_round")[0].item<float>(), 1);
}

}  // namespace
}  // namespace strata
