// Tests training whose replicas send gradients and weights as integers: against the sums and
// weights that a loop over single elements makes, and the same bits for any cut.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/disk/disk_forms_test.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/train/mesh_run_test.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

using enum TrafficFormat;

constexpr Traffic kGradientsInt8{.gradients = kInt8};
constexpr Traffic kBoth{.gradients = kInt4, .weights = kInt8, .block = 64};

MeshCase traffic_case(int replicas, int zero, const Traffic& traffic) {
  MeshCase c;
  c.model = {.layers = 2, .width = 48, .heads = 4, .vocab = 50, .context = 16, .dropout = 0.1};
  c.mesh[Axis::kData] = replicas;
  c.mini_batch = 12;
  c.zero = zero;
  c.traffic = traffic;
  c.steps = 4;
  return c;
}

// Sets the elements of a weight, whose first one is element `offset` of its layer's buffer, to what
// integers of their blocks stand for. Vectors stay.
void round_weight(const at::Tensor& weight, std::int64_t offset, TrafficFormat format,
                  std::int64_t block) {
  if (weight.dim() < 2) return;
  const float most = format == kInt8 ? 127 : 7;
  const at::Tensor flat = weight.view({-1});
  float* const x = flat.data_ptr<float>();
  for (std::int64_t i = 0; i < flat.numel();) {
    const std::int64_t end = std::min((offset + i) / block * block + block - offset, flat.numel());
    float largest = 0;
    for (std::int64_t j = i; j < end; ++j) largest = std::max(largest, std::fabs(x[j]));
    for (; i < end; ++i)
      x[i] = largest > 0 ? std::nearbyintf(x[i] * (most / largest)) * (largest / most) : 0;
  }
}

using Tensors = std::map<std::string, at::Tensor>;

// The gradients of a mesh's first step.
Tensors gradients_of(const MeshCase& c) {
  Tensors gradients;
  std::mutex mutex;
  on_mesh_ranks(c, [&](Trainer& trainer, Group&) {
    trainer.gradient_step(mesh_batch(c, 0));
    const std::vector<NamedState> own = trainer.owned_gradients();
    const std::lock_guard lock(mutex);
    assemble(own, gradients);
  });
  return gradients;
}

// One replica's share of them, as it would send it.
Tensors sent_by(const MeshCase& c, int replica) {
  MeshCase alone = c;
  alone.mesh[Axis::kData] = 1;
  alone.zero = 0;
  alone.traffic = {};
  Tensors sent;
  on_mesh_ranks(alone, [&](Trainer& trainer, Group&) {
    const MiniBatch batch = mesh_batch(c, 0);
    MiniBatch part = replica_batch(batch, replica, c.mesh[Axis::kData]);
    part.valid_tokens = batch.valid_tokens;  // what every replica divides its loss by
    part.first_sample = 0;
    trainer.gradient_step(part);
    for (const int layer : trainer.layers()) {
      const LayerLayout& layout = trainer.store().layout(layer);
      const Pin pin = trainer.store().acquire(layer, StateKind::kGradients);
      for (std::size_t i = 0; i < layout.specs.size(); ++i)
        round_weight(pin.weight_gradient(i), layout.placements[i].offset, c.traffic.gradients,
                     c.traffic.block);
    }
    for (const NamedState& gradient : trainer.owned_gradients())
      sent.emplace(gradient.name, gradient.values().clone());
  });
  return sent;
}

void expect_equal(const Tensors& got, const Tensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::equal(got.at(name), tensor.view_as(got.at(name)))) << name;
}

// The definition: every replica rounds its gradients, and the rounded ones are added in rank order.
TEST(CodedGradients, AreTheSumOfWhatReplicasRound) {
  for (const TrafficFormat format : {kInt8, kInt4})
    for (const int replicas : {2, 3}) {
      MeshCase c = traffic_case(replicas, 1, {.gradients = format, .block = 32});
      c.model.dropout = 0;  // its bits are those of a place in the mini-batch
      c.model.tie = false;
      Tensors sum = sent_by(c, 0);
      for (int replica = 1; replica < replicas; ++replica)
        for (const auto& [name, gradient] : sent_by(c, replica)) sum.at(name).add_(gradient);
      for (const int zero : {1, 2, 3}) {
        c.zero = zero;
        SCOPED_TRACE(testing::Message() << c << ' ' << name_of(format));
        expect_equal(gradients_of(c), sum);
      }
    }
}

// Without shards, or with several groups that share shards, replicas send each other rounded sums.
TEST(CodedGradients, ThatReplicasGatherAreRoundedSums) {
  for (const auto& [replicas, zero, shard_ranks] :
       {std::tuple(2, 0, 0), {3, 0, 0}, {4, 1, 2}, {4, 2, 2}, {4, 3, 2}}) {
    MeshCase c = traffic_case(replicas, zero, {.gradients = kInt8});
    c.shard_ranks = shard_ranks;
    c.model.dropout = 0;
    c.model.tie = false;
    Tensors sum = sent_by(c, 0);
    for (int replica = 1; replica < replicas; ++replica)
      for (const auto& [name, gradient] : sent_by(c, replica)) sum.at(name).add_(gradient);
    const Sequential model = mesh_model(c);
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      const LayerLayout layout = model.layout(layer);
      for (std::size_t i = 0; i < layout.specs.size(); ++i) {
        at::Tensor& tensor = sum.at(weight_name(model, layer, layout.specs[i]));
        tensor = tensor.view(layout.specs[i].shape);
        round_weight(tensor, layout.placements[i].offset, kInt8, c.traffic.block);
      }
    }
    SCOPED_TRACE(testing::Message() << c << ", shard ranks " << shard_ranks);
    expect_equal(gradients_of(c), sum);
  }
}

// Ranks compute with rounded weights, and updates move the weights themselves.
TEST(CodedWeights, AreRoundedForComputeAndWholeForUpdates) {
  for (const TrafficFormat format : {kInt8, kInt4}) {
    MeshCase c = traffic_case(2, 3, {.weights = format});
    c.model.tie = false;
    c.optimizer = OptimizerKind::kSgd;
    c.momentum = 0;
    c.clip = 0;
    Tensors before, after, rounded, moved;
    double loss = 0, loss_of_rounded = 0;
    std::mutex mutex;
    const auto weights_of = [&](Trainer& trainer, Tensors& to) {
      const std::vector<NamedState> own = trainer.owned_weights();
      const std::lock_guard lock(mutex);
      assemble(own, to);
    };
    const auto without_decay = [](TrainerOptions& options) { options.optimizer.weight_decay = 0; };
    on_mesh_ranks(
        c,
        [&](Trainer& trainer, Group& group) {
          weights_of(trainer, before);
          const double mean = trainer.step(mesh_batch(c, 0), 1e-2).loss;
          if (group.rank() == 0) loss = mean;
          weights_of(trainer, after);
        },
        without_decay);
    MeshCase full = c;
    full.traffic = {};
    full.zero = 0;
    on_mesh_ranks(
        full,
        [&](Trainer& trainer, Group& group) {
          for (const int layer : trainer.layers()) {
            const LayerLayout& layout = trainer.store().layout(layer);
            const Pin pin = trainer.store().acquire(layer, StateKind::kWeights);
            for (std::size_t i = 0; i < layout.specs.size(); ++i)
              round_weight(pin.weights()[i].detach(), layout.placements[i].offset, format,
                           c.traffic.block);
          }
          group.barrier();
          weights_of(trainer, rounded);
          const double mean = trainer.step(mesh_batch(c, 0), 1e-2).loss;
          if (group.rank() == 0) loss_of_rounded = mean;
          weights_of(trainer, moved);
        },
        without_decay);
    EXPECT_EQ(loss, loss_of_rounded) << name_of(format);
    int differ = 0;
    for (const auto& [name, weight] : before) {
      differ += at::equal(weight, rounded.at(name)) ? 0 : 1;
      const at::Tensor by = after.at(name) - weight, expected = moved.at(name) - rounded.at(name);
      EXPECT_GT(expected.abs().max().item<float>(), 0) << name;
      EXPECT_LE((by - expected).abs().max().item<float>(), 1e-6f) << name;
    }
    EXPECT_GT(differ, 4);
  }
}

TEST(CodedTraffic, HasSameBitsForAnyCut) {
  for (const bool tie : {false, true})
    for (const auto& [zero, traffic] :
         {std::pair(0, kGradientsInt8), {2, kGradientsInt8}, {3, kBoth}}) {
      MeshCase one = traffic_case(2, zero, traffic);
      one.model.tie = tie;
      expect_same_bits_for_any_cut(one);
    }
}

TEST(CodedTraffic, HasSameBitsInEveryZeroStageWithShards) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf}) {
    MeshCase c = traffic_case(4, 1, {.gradients = kInt4});
    c.precision = precision;
    const MeshRecord expected = train_on_mesh(c);
    for (const int zero : {2, 3}) {
      c.zero = zero;
      SCOPED_TRACE(testing::Message() << c);
      expect_same_bits(train_on_mesh(c), expected);
    }
  }
}

// Where states live, and when they are fetched, changes nothing.
TEST(CodedTraffic, HasSameBitsInEveryTier) {
  for (const auto& [precision, zero, shard_ranks] : {std::tuple(at::kFloat, 3, 0),
                                                     {at::kBFloat16, 3, 0},
                                                     {at::kHalf, 3, 2},
                                                     {at::kFloat, 2, 2},
                                                     {at::kFloat, 0, 0}}) {
    MeshCase c = traffic_case(4, zero, zero == 3 ? kBoth : kGradientsInt8);
    c.shard_ranks = shard_ranks;
    c.precision = precision;
    const MeshRecord expected = train_on_mesh(c);
    for (const LayerTiers& tiers : {LayerTiers{Tier::kHost, Tier::kHost, Tier::kHost},
                                    LayerTiers{Tier::kDisk, Tier::kDisk, Tier::kDisk}}) {
      const DiskScratch folder;
      MeshCase off = c;
      off.tiers = tiers;
      if (tiers.states == Tier::kDisk) off.disk = folder.path("states");
      SCOPED_TRACE(testing::Message() << off);
      expect_same_bits(train_on_mesh(off), expected);
    }
  }
}

TEST(CodedTraffic, ProcessesHaveBitsOfThreads) {
  for (const auto& [zero, traffic] : {std::pair(0, kGradientsInt8), {3, kBoth}}) {
    const MeshCase c = traffic_case(4, zero, traffic);
    const MeshRecord threads = train_on_mesh(c);
    const Sequential model = mesh_model(c);
    const StepPlan plan = mesh_plan(c, model);
    std::vector<double> losses;
    FaultyNetwork network(2, {});
    run_on_two_processes(network, c.mesh.size(), [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, mesh_options(c));
      trainer.initialise();
      for (int step = 0; step < c.steps; ++step) {
        const double loss = trainer.step(mesh_batch(c, step), 1e-2).loss;
        if (group.rank() == 0) losses.push_back(loss);
      }
    });
    EXPECT_EQ(losses, threads.losses);
  }
}

// Replicas, and tensor-parallel ranks with the same undivided weights, must keep them equal:
// assemble() does not compare.
TEST(CodedTraffic, RanksWithTheSameWeightsStayEqual) {
  for (const auto& [axis, sequence] :
       {std::pair(Axis::kTensor, false), {Axis::kTensor, true}, {Axis::kContext, false}})
    for (const int zero : {0, 3}) {
      MeshCase c = traffic_case(2, zero, zero == 3 ? kBoth : Traffic{.gradients = kInt4});
      c.mesh[axis] = 2;
      c.sequence = sequence;
      SCOPED_TRACE(testing::Message() << c);
      std::mutex mutex;
      std::map<std::string, std::map<std::int64_t, at::Tensor>> first;  // by name and first element
      int compared = 0;
      on_mesh_ranks(c, [&](Trainer& trainer, Group&) {
        for (int step = 0; step < c.steps; ++step) trainer.step(mesh_batch(c, step), 1e-2);
        const std::vector<NamedState> own = trainer.weights();
        const std::lock_guard lock(mutex);
        for (const NamedState& state : own)
          for (std::size_t i = 0; i < state.runs.size(); ++i) {
            const at::Tensor run = state.local[i].clone();
            const auto [known, is_first] = first[state.name].try_emplace(state.runs[i].global, run);
            if (is_first || known->second.sizes() != run.sizes()) continue;
            EXPECT_TRUE(at::equal(known->second, run)) << state.name;
            ++compared;
          }
      });
      // With ZeRO 3 the ranks of dp and cp have no weight twice.
      if (zero == 0 || axis == Axis::kTensor) EXPECT_GT(compared, 10);
    }
}

TEST(CodedTraffic, ResumedRunHasBitsOfUninterruptedOne) {
  const ScratchFolder folder;
  MeshCase c = traffic_case(2, 3, kBoth);
  c.steps = 6;
  const MeshRecord whole = train_on_mesh(c);
  expect_same_bits(train_and_save(c, folder.path("saved"), 6, 3), whole);
  MeshRecord resumed =
      train_and_save(c, folder.path("again"), 6, 100, folder.path("saved") + "/step-00000003");
  resumed.losses.insert(resumed.losses.begin(), whole.losses.begin(), whole.losses.begin() + 3);
  resumed.norms.insert(resumed.norms.begin(), whole.norms.begin(), whole.norms.begin() + 3);
  expect_same_bits(resumed, whole);
}

// Every micro-batch's gradients are rounded, where they live makes no difference.
TEST(CodedTraffic, RoundsEachMicroBatchIfThatIsWhenReplicasAdd) {
  MeshCase c = traffic_case(2, 2, kGradientsInt8);
  const MeshRecord once = train_on_mesh(c);
  c.reduce_each = true;
  const MeshRecord each = train_on_mesh(c);
  EXPECT_NE(each.losses, once.losses);
  expect_close(each, once, 5e-3, 2e-2);
  c.zero = 3;
  c.mesh[Axis::kPipeline] = 2;
  expect_same_bits(train_on_mesh(c), each);
  const DiskScratch folder;
  c.tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk};
  c.disk = folder.path("states");
  expect_same_bits(train_on_mesh(c), each);
}

// A gradient that overflows is no number after rounding, too.
TEST(CodedTraffic, OverflowedGradientsSkipTheStep) {
  for (const int zero : {0, 2}) {
    MeshCase c = traffic_case(2, zero, kGradientsInt8);
    c.precision = at::kHalf;
    on_mesh_ranks(c, [&](Trainer& trainer, Group&) {
      trainer.step(mesh_batch(c, 0), 1e-2);
      trainer.fill([&](const std::vector<NamedState>&, const std::vector<NamedState>& slots) {
        for (const NamedState& slot : slots)
          if (slot.name == "loss_scale") slot.local[0].fill_(0x1p100);
      });
      EXPECT_TRUE(trainer.step(mesh_batch(c, 1), 1e-2).skipped);
    });
  }
}

TEST(CodedTraffic, LearnsAlmostTheSame) {
  MeshCase c = traffic_case(4, 3, {});
  c.steps = 30;
  const auto train = [&](const Traffic& traffic) {
    c.traffic = traffic;
    MeshCase repeated = c;
    return train_on_mesh(repeated).losses.back();
  };
  const double full = train({});
  EXPECT_NEAR(train({.gradients = kInt8, .weights = kInt8}), full, 0.002 * full);
  EXPECT_NEAR(train({.gradients = kInt4, .weights = kInt8}), full, 0.01 * full);
}

// Ranks that are the only ones with their weights send none, so nothing is rounded.
TEST(CodedTraffic, OfOneReplicaIsPlainTraining) {
  for (const int tp : {1, 2}) {
    MeshCase c = traffic_case(1, 3, kBoth);
    c.mesh[Axis::kTensor] = tp;
    c.sequence = tp > 1;  // gradients of parts of the sequence are added
    const MeshRecord coded = train_on_mesh(c);
    c.traffic = {};
    expect_same_bits(train_on_mesh(c), coded);
  }
}

}  // namespace
}  // namespace strata
