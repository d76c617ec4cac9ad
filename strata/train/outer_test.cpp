// Tests replicas that train apart: against replicas that run alone, the same bits for any cut, and
// states that survive a save, also with another number of replicas.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/reader.h"
#include "strata/comm/rank_cases_test.h"
#include "strata/comm/ranks.h"
#include "strata/train/mesh_run_test.h"
#include "strata/transport/faulty_transport.h"

namespace strata {
namespace {

constexpr OuterOptions kAverage{.every = 3, .learning_rate = 1, .momentum = 0};
constexpr OuterOptions kNesterov{.every = 3, .learning_rate = 0.7, .momentum = 0.9};

MeshCase outer_case(int replicas, const OuterOptions& outer = kNesterov, int steps = 8) {
  MeshCase c;
  c.model = {.layers = 2, .width = 32, .heads = 4, .vocab = 48, .context = 16, .dropout = 0.1};
  c.mesh[Axis::kData] = replicas;
  c.mini_batch = 12;
  c.outer = outer;
  c.steps = steps;
  return c;
}

void expect_same_weights(const MeshRecord& run, const MeshRecord& expected) {
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_EQ(run.norms, expected.norms);
  ASSERT_EQ(run.weights.size(), expected.weights.size());
  for (const auto& [name, weight] : expected.weights)
    EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
}

TEST(OuterTraining, MeanOfOneReplicaIsPlainTraining) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf}) {
    MeshCase c = outer_case(1, kAverage);
    c.precision = precision;
    const MeshRecord apart = train_on_mesh(c);
    c.outer = {};
    const MeshRecord plain = train_on_mesh(c);
    expect_same_weights(apart, plain);
    EXPECT_EQ(apart.slots.size(), plain.slots.size());  // no states of its own
    for (const auto& [name, slot] : plain.slots)
      EXPECT_TRUE(at::equal(apart.slots.at(name + ".0"), slot)) << name;
  }
}

// The mini-batch of one of several replicas, alone.
MiniBatch part_of_batch(const MiniBatch& batch, int replica, int replicas) {
  MiniBatch part = replica_batch(batch, replica, replicas);
  part.valid_tokens = part.inputs.back().ne(kIgnoredTarget).sum().item<std::int64_t>();
  part.first_sample = 0;
  return part;
}

// Clipped by its own norm, and divided by its own targets: the first replica has fewer.
TEST(OuterTraining, ReplicaTrainsAsIfAlone) {
  constexpr int kReplicas = 2;
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf}) {
    MeshCase c = outer_case(kReplicas, kAverage, kAverage.every);
    c.model.dropout = 0;  // its bits are those of a place in the mini-batch
    c.precision = precision;
    const MeshRecord apart = train_on_mesh(c);
    MeshCase alone = c;
    alone.outer = {};
    alone.mesh[Axis::kData] = 1;
    std::map<std::string, at::Tensor> mean;
    std::vector<double> sums(c.steps), squares(c.steps);
    for (int replica = 0; replica < kReplicas; ++replica)
      on_mesh_ranks(alone, [&](Trainer& trainer, Group&) {
        for (int step = 0; step < c.steps; ++step) {
          const MiniBatch part = part_of_batch(mesh_batch(c, step), replica, kReplicas);
          const StepOutcome outcome = trainer.step(part, 1e-2);
          const auto i = static_cast<std::size_t>(step);
          sums[i] += outcome.loss * static_cast<double>(part.valid_tokens);
          squares[i] += outcome.gradient_norm * outcome.gradient_norm;
          EXPECT_GT(outcome.gradient_norm, c.clip);  // so the clipping matters
        }
        for (const NamedState& weight : trainer.weights()) {
          const auto [sum, first] = mean.try_emplace(weight.name, weight.tensor().clone());
          if (!first) sum->second.add_(weight.tensor());
        }
      });
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const auto valid = static_cast<double>(mesh_batch(c, static_cast<int>(i)).valid_tokens);
      EXPECT_DOUBLE_EQ(apart.losses[i], sums[i] / valid) << i;
      EXPECT_DOUBLE_EQ(apart.norms[i], std::sqrt(squares[i] / kReplicas)) << i;
    }
    for (auto& [name, sum] : mean)
      EXPECT_TRUE(at::equal(apart.weights.at(name), sum.div_(kReplicas))) << name;
  }
}

TEST(OuterTraining, HasSameBitsForAnyCut) {
  for (const bool tie : {false, true}) {
    MeshCase one = outer_case(2);  // ends inside a round
    one.model.tie = tie;
    expect_same_bits_for_any_cut(one);
  }
  MeshCase one = outer_case(3, kNesterov, 6);
  one.precision = at::kBFloat16;
  expect_same_bits_for_any_cut(one);
  one = outer_case(2);
  one.mesh[Axis::kContext] = 2;
  expect_same_bits_for_any_cut(one);
}

TEST(OuterTraining, RecordedStepsHaveSameBits) {
  const MeshCase c = outer_case(2);
  const MeshRecord recorded =
      train_on_mesh(c, [](TrainerOptions& options) { options.graph.mode = GraphMode::kOn; });
  EXPECT_GT(recorded.replayed, 0);
  expect_same_bits(recorded, train_on_mesh(c));
}

TEST(OuterTraining, ProcessesHaveBitsOfThreads) {
  MeshCase c = outer_case(2);
  c.mesh[Axis::kPipeline] = 2;
  const MeshRecord threads = train_on_mesh(c);
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  std::mutex mutex;
  MeshRecord processes;
  FaultyNetwork network(2, {});
  run_on_two_processes(network, c.mesh.size(), [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, mesh_options(c));
    trainer.initialise();
    for (int step = 0; step < c.steps; ++step) {
      const StepOutcome outcome = trainer.step(mesh_batch(c, step), 1e-2);
      if (group.rank() > 0) continue;
      processes.losses.push_back(outcome.loss);
      processes.norms.push_back(outcome.gradient_norm);
    }
    const std::vector<NamedState> weights = trainer.owned_weights();
    const std::vector<NamedState> slots = trainer.owned_slots();
    const std::lock_guard lock(mutex);
    assemble(weights, processes.weights);
    assemble(slots, processes.slots);
  });
  expect_same_bits(processes, threads);
}

// Bytes along dp: an outer step sends what a sum of gradients sends, other steps only the numbers
// of their outcome.
TEST(OuterTraining, ReplicasSendNothingInsideARound) {
  const MeshCase c = outer_case(2);
  std::int64_t weights = 0;
  std::vector<std::int64_t> sent(static_cast<std::size_t>(c.steps));
  on_mesh_ranks(c, [&](Trainer& trainer, Group& group) {
    for (int step = 0; step < c.steps; ++step) {
      const auto count = [&] {
        return trainer.groups()[Axis::kData].sent_bytes() + trainer.groups().weights.sent_bytes();
      };
      const std::int64_t before = count();
      trainer.step(mesh_batch(c, step), 1e-2);
      if (group.rank() == 0) sent[static_cast<std::size_t>(step)] = count() - before;
    }
    for (const int layer : trainer.layers())
      if (group.rank() == 0) weights += trainer.store().layout(layer).own_numel;
  });
  for (int step = 0; step < c.steps; ++step) {
    const auto bytes = static_cast<double>(sent[static_cast<std::size_t>(step)]);
    if (kNesterov.ends_round(step + 1))
      EXPECT_NEAR(bytes, 4.0 * static_cast<double>(weights), 0.1 * static_cast<double>(weights));
    else
      EXPECT_LT(bytes, 100) << step;
  }
}

// Ranks that hold the same weights must move by the same bits, which assemble() does not compare.
TEST(OuterTraining, RanksOfOneReplicaStayEqual) {
  for (const auto& [axis, sequence] :
       {std::pair(Axis::kTensor, false), {Axis::kTensor, true}, {Axis::kContext, false}}) {
    MeshCase c = outer_case(2);
    c.mesh[axis] = 2;
    c.sequence = sequence;
    std::mutex mutex;
    std::vector<std::vector<at::Tensor>> first(2);  // by replica
    int compared = 0;
    on_mesh_ranks(c, [&](Trainer& trainer, Group& group) {
      for (int step = 0; step < c.steps; ++step) trainer.step(mesh_batch(c, step), 1e-2);
      std::vector<at::Tensor> own;
      for (const NamedState& state : trainer.weights())  // with the shared weights
        if (state.runs.size() == 1 && state.runs[0].numel == state.numel())
          own.push_back(state.tensor().clone());
      const int replica = c.mesh.place(group.rank())[Axis::kData];
      const std::lock_guard lock(mutex);
      std::vector<at::Tensor>& others = first[static_cast<std::size_t>(replica)];
      if (others.empty()) {
        others = std::move(own);
        return;
      }
      ASSERT_EQ(own.size(), others.size());
      for (std::size_t i = 0; i < own.size(); ++i) EXPECT_TRUE(at::equal(own[i], others[i])) << i;
      compared += static_cast<int>(own.size());
    });
    EXPECT_GT(compared, 0);
  }
}

TEST(OuterTraining, DividedRanksLearnTheSame) {
  MeshCase c = outer_case(2);
  c.model.dropout = 0;
  const MeshRecord alone = train_on_mesh(c);
  for (const Axis axis : {Axis::kTensor, Axis::kContext}) {
    c.mesh = {{Axis::kData, 2}, {axis, 2}};
    const MeshRecord divided = train_on_mesh(c);
    expect_close(divided, alone, 1e-3, 5e-3);
    ASSERT_EQ(divided.slots.size(), alone.slots.size());
    for (const auto& [name, slot] : alone.slots)
      EXPECT_LE((divided.slots.at(name) - slot).abs().max().item<float>(), 5e-3f) << name;
  }
}

TEST(OuterTraining, MuonAndLambAreInnerOptimizers) {
  for (const OptimizerKind optimizer : {OptimizerKind::kMuon, OptimizerKind::kLamb}) {
    MeshCase one = outer_case(2, kNesterov, 5);
    one.model.dropout = 0;
    one.optimizer = optimizer;
    const MeshRecord alone = train_on_mesh(one);
    EXPECT_LT(alone.losses.back(), alone.losses.front() + 0.5);
    MeshCase cut = one;
    cut.mesh[Axis::kPipeline] = 2;
    expect_same_bits(train_on_mesh(cut), alone);
  }
}

TEST(OuterTraining, EvaluatesMeanAndChangesNothing) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const int pp : {1, 2}) {
      MeshCase c = outer_case(2);
      c.precision = precision;
      c.model.tie = true;
      c.mesh[Axis::kPipeline] = pp;
      const MeshRecord plain = train_on_mesh(c);
      const std::vector<MiniBatch> batches{mesh_batch(c, 100), mesh_batch(c, 101)};
      std::vector<double> losses, means;
      std::vector<std::map<std::string, at::Tensor>> models(static_cast<std::size_t>(c.steps));
      std::mutex mutex;
      MeshRecord evaluated;
      on_mesh_ranks(c, [&](Trainer& trainer, Group& group) {
        for (int step = 0; step < c.steps; ++step) {
          const StepOutcome outcome = trainer.step(mesh_batch(c, step), 1e-2);
          const double mean = trainer.evaluate(batches);
          const std::vector<NamedState> weights = trainer.owned_weights();
          const std::lock_guard lock(mutex);
          assemble(weights, models[static_cast<std::size_t>(step)]);
          if (group.rank() > 0) continue;
          losses.push_back(outcome.loss);
          means.push_back(mean);
        }
      });
      EXPECT_EQ(losses, plain.losses);
      // A plain run with the mean weights has the same loss.
      MeshCase alone = c;
      alone.outer = {};
      alone.mesh = {};
      on_mesh_ranks(alone, [&](Trainer& trainer, Group&) {
        for (std::size_t step = 0; step < models.size(); ++step) {
          trainer.fill([&](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
            for (const NamedState& weight : weights)
              assign_whole(weight, models[step].at(weight.name));
          });
          EXPECT_NEAR(trainer.evaluate(batches), means[step], 1e-5 * means[step]) << step;
        }
      });
      for (const auto& [name, weight] : plain.weights)
        EXPECT_TRUE(at::equal(models.back().at(name), weight)) << name;
    }
}

TEST(OuterTraining, ModelIsMeanOfReplicas) {
  const MeshRecord run = train_on_mesh(outer_case(3));  // two steps into a round
  int compared = 0, moved = 0;
  for (const auto& [name, weight] : run.weights) {
    const auto of = [&](int replica) {
      return run.slots.at(name + "." + kReplicaWeight + "." + std::to_string(replica));
    };
    EXPECT_TRUE(at::equal(weight, (of(0) + of(1) + of(2)).div_(3))) << name;
    moved += at::equal(of(0), of(1)) ? 0 : 1;
    ++compared;
  }
  EXPECT_GT(compared, 0);
  EXPECT_EQ(moved, compared);
}

// C++ leaves open which argument of a save is made first.
TEST(OuterTraining, SlotsMayBeListedBeforeWeights) {
  const MeshCase c = outer_case(2);
  MeshRecord run;
  std::mutex mutex;
  on_mesh_ranks(c, [&](Trainer& trainer, Group& group) {
    for (int step = 0; step < c.steps; ++step) {
      const StepOutcome& outcome = trainer.step(mesh_batch(c, step), 1e-2);
      if (group.rank() > 0) continue;
      run.losses.push_back(outcome.loss);
      run.norms.push_back(outcome.gradient_norm);
    }
    const std::vector<NamedState> slots = trainer.owned_slots();
    const std::vector<NamedState> weights = trainer.owned_weights();
    const std::lock_guard lock(mutex);
    assemble(slots, run.slots);
    assemble(weights, run.weights);
  });
  expect_same_bits(run, train_on_mesh(c));
}

TEST(OuterTraining, ResumedRunHasBitsOfUninterruptedOne) {
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const ScratchFolder folder;
    MeshCase c = outer_case(2);
    c.precision = precision;
    const MeshRecord whole = train_on_mesh(c);
    // Saves change nothing.
    expect_same_bits(train_and_save(c, folder.path("saved"), 8, 1), whole);
    for (const int saved : {2, 3, 5}) {  // inside of rounds and at the end of one
      MeshCase cut = c;
      cut.mesh[Axis::kPipeline] = 2;
      const MeshRecord resumed = train_and_save(cut, folder.path("again" + std::to_string(saved)),
                                                8, 100, checkpoint_at(folder.path("saved"), saved));
      SCOPED_TRACE(saved);
      expect_resumed(resumed, whole);
    }
  }
}

TEST(OuterTraining, ResumesPartsOfSamplesAndSlices) {
  for (const Axis axis : {Axis::kContext, Axis::kTensor}) {
    const ScratchFolder folder;
    MeshCase c = outer_case(2);
    c.mesh[axis] = 2;
    const MeshRecord whole = train_and_save(c, folder.path("saved"), 8, 4);
    const MeshRecord resumed =
        train_and_save(c, folder.path("again"), 8, 100, checkpoint_at(folder.path("saved"), 4));
    expect_resumed(resumed, whole);
  }
}

TEST(OuterTraining, CheckpointOfRoundsEndHasNoWeightsOfReplicas) {
  const ScratchFolder folder;
  train_and_save(outer_case(2), folder.path("saved"), 4, 1);
  const auto replicas_in = [&](int step) {
    int count = 0;
    for (const std::string& name :
         CheckpointReader::open(checkpoint_at(folder.path("saved"), step)).names())
      count += name.find(kReplicaWeight) != std::string::npos ? 1 : 0;
    return count;
  };
  EXPECT_EQ(replicas_in(3), 0);
  EXPECT_GT(replicas_in(4), 0);
}

// The mean of the saved states that are named `name` with the number of a replica.
at::Tensor mean_state(const CheckpointReader& saved, const std::string& name, int replicas) {
  at::Tensor mean = saved.tensor(name + ".0").clone();
  for (int i = 1; i < replicas; ++i) mean.add_(saved.tensor(name + "." + std::to_string(i)));
  return mean.div_(replicas);
}

TEST(OuterTraining, OtherReplicasBeginWithMeans) {
  constexpr int kSaved = 5;
  for (const at::ScalarType precision : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const ScratchFolder folder;
    MeshCase c = outer_case(4);
    c.precision = precision;
    const MeshRecord before = train_and_save(c, folder.path("four"), kSaved, kSaved);
    const CheckpointReader saved = CheckpointReader::open(folder.path("four"));
    const double uninterrupted = train_on_mesh(c).losses.back();
    for (const int replicas : {1, 2, 3, 6}) {
      c.mesh[Axis::kData] = replicas;
      const MeshRecord loaded = train_and_save(c, folder.path("to" + std::to_string(replicas)),
                                               kSaved, 100, folder.path("four"));
      for (const auto& [name, weight] : before.weights)
        EXPECT_LE((loaded.weights.at(name) - weight).abs().max().item<float>(), 1e-6f) << name;
      int means = 0;
      for (const auto& [name, slot] : loaded.slots) {
        if (saved.contains(name.substr(0, name.rfind('.')) + ".0")) {
          if (name.starts_with("loss_scale")) continue;
          const at::Tensor mean = mean_state(saved, name.substr(0, name.rfind('.')), 4);
          EXPECT_LE((slot - mean).abs().max().item<float>(), 1e-6f) << name;
          ++means;
        } else {
          EXPECT_TRUE(at::equal(slot, saved.tensor(name))) << name;  // what all have in common
        }
      }
      EXPECT_GT(means, 0);
      const MeshRecord trained = train_and_save(c, folder.path("on" + std::to_string(replicas)), 8,
                                                100, folder.path("four"));
      for (const double loss : trained.losses)
        EXPECT_NEAR(loss, uninterrupted, 0.1 * uninterrupted);
    }
  }
}

TEST(OuterTraining, PlainRunsContinueApartAndBack) {
  const ScratchFolder folder;
  MeshCase plain = outer_case(2, {}, 8), apart = outer_case(2);
  train_and_save(plain, folder.path("plain"), 4, 4);
  const CheckpointReader common = CheckpointReader::open(folder.path("plain"));
  const MeshRecord begun =
      train_and_save(apart, folder.path("begun"), 4, 100, folder.path("plain"));
  int shared = 0, each = 0;
  for (const auto& [name, slot] : begun.slots) {
    const std::string stem = name.substr(0, name.rfind('.'));
    if (name.ends_with(kOuterWeight)) {
      ++shared;
      EXPECT_TRUE(at::equal(slot, begun.weights.at(stem))) << name;
    } else if (name.ends_with(kOuterMomentum)) {
      EXPECT_EQ(slot.abs().max().item<float>(), 0) << name;
    } else if (stem.find(kReplicaWeight) == std::string::npos) {
      ++each;
      EXPECT_TRUE(at::equal(slot, common.tensor(stem))) << name;
    }
  }
  EXPECT_GT(shared, 0);
  EXPECT_GT(each, 0);
  train_and_save(apart, folder.path("apart"), 7, 7, folder.path("plain"));
  const CheckpointReader saved = CheckpointReader::open(folder.path("apart"));
  const MeshRecord back = train_and_save(plain, folder.path("back"), 7, 100, folder.path("apart"));
  for (const auto& [name, slot] : back.slots)
    EXPECT_LE((slot - mean_state(saved, name, 2)).abs().max().item<float>(), 1e-7f) << name;
}

// A gradient that overflows skips the update of its replica alone, which then has a smaller scale.
TEST(OuterTraining, ReplicaSkipsAlone) {
  MeshCase c = outer_case(2);
  c.precision = at::kHalf;
  on_mesh_ranks(c, [&](Trainer& trainer, Group& group) {
    trainer.step(mesh_batch(c, 0), 1e-2);
    trainer.fill([&](const std::vector<NamedState>&, const std::vector<NamedState>& slots) {
      for (const NamedState& slot : slots)
        if (slot.name == "loss_scale.1") slot.local[0].fill_(0x1p100);
    });
    std::map<std::string, at::Tensor> before;
    for (const NamedState& weight : trainer.weights())
      before.try_emplace(weight.name, weight.values().clone());
    EXPECT_TRUE(trainer.step(mesh_batch(c, 1), 1e-2).skipped);
    int moved = 0, all = 0;
    std::map<std::string, int> seen;
    for (const NamedState& weight : trainer.weights()) {
      if (seen[weight.name]++ > 0) continue;  // the shared weight
      moved += at::equal(weight.values(), before.at(weight.name)) ? 0 : 1;
      ++all;
    }
    EXPECT_EQ(moved, group.rank() == 1 ? 0 : all);
    EXPECT_FALSE(trainer.step(mesh_batch(c, 2), 1e-2).gradient_norm == 0);
    for (const NamedState& slot : trainer.slots())
      if (slot.name.starts_with("loss_scale"))
        EXPECT_EQ(slot.local[2].item<float>(), group.rank() == 1 ? 2 : 0);
  });
}

}  // namespace
}  // namespace strata
