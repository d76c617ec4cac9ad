// Tests optimizers that send signs with ZeRO: replicas that share shards act as one replica, every
// stage has the same bits, and only signs cross between groups. sign_shards_resume_test.cpp resumes
// runs, zero_one_formulas_test.cpp compares them with loops.
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "strata/checkpoint/named_state.h"
#include "strata/optim/one_bit_adam.h"
#include "strata/optim/outer_step.h"
#include "strata/train/sign_shards_test.h"

namespace strata {
namespace {

using namespace sign_shards;
using enum OptimizerKind;

TEST(SignShards, EveryZeroStageHasSameBits) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const auto& [groups, shards, tie] :
         {std::tuple(2, 2, false), {2, 2, true}, {3, 2, false}, {1, 3, false}}) {
      MeshCase c = shared_case(kind, groups, shards, 1);
      c.model.tie = tie;
      const MeshRecord once = train(c);
      for (c.zero = 2; c.zero <= 3; ++c.zero) {
        SCOPED_TRACE(testing::Message() << c);
        expect_same_bits(train(c), once);
      }
      c.zero = 2;
      c.reduce_each = true;
      const MeshRecord each = train(c);
      expect_close(each, once, groups == 1 ? 1e-4 : 0.05, 1);
      c.zero = 3;
      expect_same_bits(train(c), each);
    }
}

TEST(SignShards, EveryZeroStageHasSameBitsOnSlicesAndParts) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const Axis axis : {Axis::kTensor, Axis::kContext}) {
      MeshCase c = shared_case(kind, 2, 2, 1);
      c.mesh[axis] = 2;
      if (axis == Axis::kTensor) c.sequence = true;
      if (axis == Axis::kContext) c.mesh[Axis::kData] = 2;
      const MeshRecord once = train(c);
      for (c.zero = 2; c.zero <= 3; ++c.zero) {
        SCOPED_TRACE(testing::Message() << c);
        expect_same_bits(train(c), once);
      }
    }
}

TEST(SignShards, EveryCutHasSameBits) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const bool tie : {false, true}) {
      MeshCase c = shared_case(kind, 2, 2, tie ? 1 : 3);
      c.model.tie = tie;
      expect_same_bits_for_any_cut(c, schedule);
    }
}

TEST(SignShards, EveryZeroStageHasSameBitsInSixteenBits) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const at::ScalarType precision : {at::kBFloat16, at::kHalf}) {
      MeshCase c = shared_case(kind, 2, 2, 1);
      const MeshRecord fp32 = train(c);
      c.precision = precision;
      const MeshRecord run = train(c);
      for (std::size_t i = 0; i < run.losses.size(); ++i)
        EXPECT_NEAR(run.losses[i], fp32.losses[i], 0.05 * fp32.losses[i]) << precision << ' ' << i;
      c.zero = 3;
      c.mesh[Axis::kPipeline] = 2;
      expect_same_bits(train(c), run);
    }
}

// Gradients are summed in another order, and scales cover other parts.
TEST(SignShards, GroupLearnsLikeOneReplica) {
  for (const OptimizerKind kind : {kOneBitAdam, kZeroOneAdam, kOneBitLamb})
    for (const int groups : {1, 2}) {
      const MeshRecord replicas = train(shared_case(kind, groups, 1, 0));
      const MeshRecord shared = train(shared_case(kind, groups, 2, 1));
      for (int step = 0; step < kSteps; ++step) {
        // Signs of elements near zero differ from the second message on.
        const double by = groups == 1 || step < 3 ? 1e-4 : 0.02;
        EXPECT_NEAR(shared.losses[step], replicas.losses[step], by * replicas.losses[step]) << step;
        EXPECT_NEAR(shared.norms[step], replicas.norms[step], 10 * by * replicas.norms[step]);
      }
    }
}

TEST(SignShards, IsAdamWWithShardsUntilFreezeStep) {
  MeshCase c = shared_case(kOneBitAdam, 2, 2, 2);
  c.steps = kFreeze;
  const MeshRecord run = train(c);
  c.optimizer = kAdamW;
  const MeshRecord adam = train(c);
  EXPECT_EQ(run.losses, adam.losses);
  for (const auto& [name, weight] : adam.weights)
    EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
}

// The mini-batch of a step, the same samples for both groups.
MiniBatch doubled_batch(const MeshCase& c, int step) {
  MeshCase half = c;
  half.mini_batch = c.mini_batch / 2;
  const MiniBatch one = mesh_batch(half, step);
  return {
      .inputs = {at::cat({one.inputs[0], one.inputs[0]}), at::cat({one.inputs[1], one.inputs[1]})},
      .samples = c.mini_batch,
      .valid_tokens = 2 * one.valid_tokens};
}

TEST(SignShards, NormIsThatOfSumIfGroupsHaveSameGradients) {
  for (const int zero : {1, 3}) {
    MeshCase c = shared_case(kOneBitAdam, 2, 2, zero);
    c.model.dropout = 0;
    c.mesh[Axis::kTensor] = 2;
    double norms[2];
    for (const OptimizerKind kind : {kOneBitAdam, kAdamW}) {
      c.optimizer = kind;
      on_mesh_ranks(
          c,
          [&](Trainer& trainer, Group& group) {
            for (int step = 0; step <= kFreeze; ++step) {
              const double norm = trainer.step(doubled_batch(c, step), 1e-2).gradient_norm;
              if (group.rank() == 0) norms[kind == kAdamW] = norm;
            }
          },
          schedule);
    }
    EXPECT_NEAR(norms[0], norms[1], 1e-6 * norms[1]);
  }
}

// What a rank sends to the ranks that keep the same shards, in an update by signs.
std::int64_t sign_message_bytes(const Sequential& model, const MeshCase& c, int rank) {
  const int ranks = c.mesh.weight_ranks(), shards = std::max(1, c.shard_ranks);
  std::int64_t bytes = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    const std::int64_t numel = model.layout(layer).own_numel;
    if (numel == 0) continue;
    const LayerCuts cuts = cut_layer(numel, {.replicas = ranks, .shards = shards});
    for (int other = rank % shards; other < ranks; other += shards) {
      if (other == rank) continue;
      bytes += 4 + (cuts.parts[static_cast<std::size_t>(other)].size() + 7) / 8;
      bytes += 4 + (cuts.parts[static_cast<std::size_t>(rank)].size() + 7) / 8;
    }
  }
  return bytes;
}

// What one of two ranks that share shards sends the other in a step: gradients that the other sums,
// weights that this one updates, and the blocks of the norm.
std::int64_t group_bytes(const Sequential& model, const Program& program, int shard_rank) {
  constexpr std::int64_t kFloat = 4, kDouble = 8;
  std::int64_t bytes = 0;
  for (int layer = 0; layer < model.num_layers(); ++layer)
    bytes += kDouble * num_blocks(model.layout(layer).own_numel);
  for (const Action& action : program) {
    if (action.layers.size() != 1) continue;
    const std::int64_t numel = model.layout(action.layers.begin).own_numel;
    const FlatRange shard = cut({0, numel}, 2)[static_cast<std::size_t>(shard_rank)];
    if (action.op == Op::kReduceGradients) bytes += kFloat * (numel - shard.size());
    if (action.op == Op::kGatherWeights || action.op == Op::kPrefetchWeights)
      bytes += kFloat * shard.size();
  }
  return bytes;
}

TEST(SignShards, OnlySignsCrossBetweenGroups) {
  for (const int zero : {1, 2, 3}) {
    MeshCase c = shared_case(kZeroOneAdam, 2, 2, zero);
    c.reduce_each = zero == 3;
    const Sequential model = mesh_model(c);
    on_mesh_ranks(
        c,
        [&](Trainer& trainer, Group& group) {
          const MeshGroups& groups = trainer.groups();
          const Program& program = trainer.plan().training(/*micro_batches=*/3).programs[0];
          for (int update = 1; update <= kSteps; ++update) {
            const std::int64_t before = groups.weights.sent_bytes();
            trainer.step(mesh_batch(c, update), 1e-2);
            if (update <= 3) continue;  // sums gradients
            const bool apart = update == 8 || update == 11 || update == 12;
            const std::int64_t signs = apart ? 0 : sign_message_bytes(model, c, group.rank());
            EXPECT_EQ(groups.weights.sent_bytes() - before,
                      signs + group_bytes(model, program, groups.shard.rank()))
                << "update " << update << ", zero " << zero;
          }
        },
        schedule);
  }
}

TEST(SignShards, StatesAreThoseOfShard) {
  for (const int zero : {0, 1, 2, 3}) {
    const MeshCase c = shared_case(kOneBitAdam, 2, 2, zero);
    std::int64_t whole = 0;
    std::mutex mutex;
    std::map<int, std::int64_t> held;  // by rank
    on_mesh_ranks(
        c,
        [&](Trainer& trainer, Group& group) {
          std::int64_t elements = 0, numel = 0;
          for (const int layer : trainer.layers()) {
            const Pin pin = trainer.store().acquire(layer, StateKind::kOptimizer);
            for (const at::Tensor& slot : pin.slots()) elements += slot.numel();
            numel += kOneBitSlots * pin.layout().own_numel;
          }
          const std::lock_guard lock(mutex);
          held[group.rank()] = elements;
          whole = numel;
        },
        schedule);
    EXPECT_EQ(held[0] + held[1], zero == 0 ? 2 * whole : whole);
    EXPECT_EQ(held[2] + held[3], zero == 0 ? 2 * whole : whole);
  }
}

// All ranks of a group have the same weights in every step, and all ranks after a synchronisation.
TEST(SignShards, RanksThatShareWeightsStayEqual) {
  for (const auto& [axis, steps] : {std::pair(Axis::kTensor, 10),
                                    {Axis::kTensor, 12},
                                    {Axis::kContext, 10},
                                    {Axis::kContext, 12}})
    for (const int zero : {1, 3}) {
      MeshCase c = shared_case(kZeroOneAdam, 2, 2, zero);
      c.steps = steps;
      c.mesh[axis] = 2;
      c.sequence = axis == Axis::kTensor;
      if (axis == Axis::kContext) c.mesh[Axis::kData] = 2;  // a group has the parts of its samples
      const bool synchronised = steps == 10;
      std::mutex mutex;
      std::map<std::string, at::Tensor> first;
      int compared = 0;
      on_mesh_ranks(
          c,
          [&](Trainer& trainer, Group& group) {
            for (int step = 0; step < steps; ++step) trainer.step(mesh_batch(c, step), 1e-2);
            const MeshGroups& groups = trainer.groups();
            const std::string of = (synchronised ? "" : std::to_string(groups.replica.rank())) +
                                   "/" + std::to_string(groups[Axis::kTensor].rank()) + " ";
            for (const int layer : trainer.layers()) {
              if (trainer.store().layout(layer).own_numel == 0) continue;
              trainer.store().prefetch(layer, StateKind::kWeights);
              at::Tensor weights =
                  trainer.store().acquire(layer, StateKind::kWeights).flat_weights().clone();
              trainer.store().release(layer, StateKind::kWeights);
              const std::lock_guard lock(mutex);
              const auto [entry, fresh] =
                  first.try_emplace(of + std::to_string(layer), std::move(weights));
              if (fresh) continue;
              ++compared;
              EXPECT_TRUE(at::equal(entry->second, weights)) << of << "layer " << layer;
            }
            group.barrier();  // others still read this rank's shards
          },
          schedule);
      EXPECT_GT(compared, 0);
    }
}

TEST(SignShards, ModelIsMeanOfGroupsInsideARound) {
  for (const int zero : {1, 3})
    for (const at::ScalarType precision : {at::kFloat, at::kBFloat16}) {
      MeshCase c = shared_case(kZeroOneAdam, 3, 2, zero);
      c.precision = precision;
      const MeshRecord run = train(c);
      int moved = 0;
      for (const auto& [name, weight] : run.weights) {
        const auto of = [&](int group) {
          return run.slots.at(name + "." + kReplicaWeight + "." + std::to_string(group));
        };
        EXPECT_FALSE(run.slots.contains(name + "." + kReplicaWeight + ".3"));
        at::Tensor mean = of(0).clone();
        for (int i = 1; i < 3; ++i) mean.add_(of(i));
        EXPECT_TRUE(at::equal(weight, mean.div_(3))) << name;
        moved += at::equal(of(0), of(1)) ? 0 : 1;
      }
      EXPECT_EQ(moved, static_cast<int>(run.weights.size()));
    }
}

TEST(SignShards, EvaluationsChangeNothing) {
  for (const int zero : {1, 2, 3}) {
    MeshCase c = shared_case(kZeroOneAdam, 2, 2, zero);
    c.mesh[Axis::kPipeline] = 2;
    c.model.tie = true;
    const std::vector<MiniBatch> batches{mesh_batch(c, 100)};
    std::vector<double> losses, evaluated;
    on_mesh_ranks(
        c,
        [&](Trainer& trainer, Group& group) {
          for (int step = 0; step < kSteps; ++step) {
            const double loss = trainer.step(mesh_batch(c, step), 1e-2).loss;
            const double evaluation = trainer.evaluate(batches);
            if (group.rank() > 0) continue;
            losses.push_back(loss);
            evaluated.push_back(evaluation);
          }
        },
        schedule);
    EXPECT_EQ(losses, train(c).losses);
    EXPECT_LT(evaluated.back(), evaluated.front());
  }
}

// A gradient that overflows skips the update of all groups, inside a round, too.
TEST(SignShards, SkippedStepChangesNoState) {
  for (const int zero : {1, 3}) {
    MeshCase c = shared_case(kZeroOneAdam, 2, 2, zero);
    c.precision = at::kHalf;
    on_mesh_ranks(
        c,
        [&](Trainer& trainer, Group&) {
          int step = 0;
          while (step < 11) trainer.step(mesh_batch(c, step++), 1e-2);
          trainer.fill([](const std::vector<NamedState>&, const std::vector<NamedState>& slots) {
            for (const NamedState& slot : slots)
              if (slot.name == "loss_scale") slot.local[0].fill_(0x1p100);
          });
          std::map<std::string, at::Tensor> before;
          const auto remember = [&](bool compare) {
            for (const NamedState& slot : trainer.slots()) {
              if (slot.name == "loss_scale" || !slot.local.defined()) continue;
              const at::Tensor now = slot.values().clone();
              if (compare) EXPECT_TRUE(at::equal(now, before.at(slot.name))) << slot.name;
              before[slot.name] = now;
            }
          };
          remember(false);
          EXPECT_EQ(before.at("sign_round")[0].item<float>(), 1);
          EXPECT_TRUE(trainer.step(mesh_batch(c, step++), 1e-2).skipped);
          remember(true);
          trainer.step(mesh_batch(c, step++), 1e-2);
        },
        schedule);
  }
}

}  // namespace
}  // namespace strata
