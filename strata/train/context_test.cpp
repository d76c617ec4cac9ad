// Tests training with samples that ranks divide (axis cp): what no cut, schedule, ZeRO stage or
// memory may change, optimizers, evaluation, and memory a rank. mesh_test.cpp compares random
// meshes with one rank.
#include <gtest/gtest.h>

#include <mutex>

#include "strata/comm/ranks.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

MeshCase context_case(int ranks, ContextExchange exchange = ContextExchange::kRing) {
  MeshCase c;
  c.model = {.layers = 3, .width = 32, .heads = 4, .vocab = 48, .context = 32, .dropout = 0.1};
  c.mesh[Axis::kContext] = ranks;
  c.exchange = exchange;
  return c;
}

MeshCase on_one_rank(MeshCase c) {
  c.mesh = {};
  c.zero = 0;
  c.cp_block = 0;
  return c;
}

class Exchange : public testing::TestWithParam<ContextExchange> {};

TEST_P(Exchange, CutsAndSchedulesChangeNoBit) {
  expect_same_bits_for_any_cut(context_case(2, GetParam()));
}

TEST_P(Exchange, ZeroStagesChangeNoBit) {
  for (const int replicas : {1, 2}) {
    MeshCase c = context_case(2, GetParam());
    c.mesh[Axis::kData] = replicas;
    expect_same_bits_in_every_zero_stage(c);
  }
}

TEST_P(Exchange, MemoryOfTheHostChangesNoBit) {
  MeshCase c = context_case(2, GetParam());
  c.mesh[Axis::kPipeline] = 2;
  const MeshRecord expected = train_on_mesh(c);
  c.tiers = {.weights = Tier::kHost, .gradients = Tier::kHost, .states = Tier::kHost};
  c.recompute = "full";
  expect_same_bits(train_on_mesh(c), expected);
}

TEST_P(Exchange, EveryOptimizerLearnsWhatOneRankLearns) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::kAdamW, OptimizerKind::kMuon, OptimizerKind::kLamb}) {
    MeshCase c = context_case(2, GetParam());
    c.mesh[Axis::kTensor] = 2;
    c.mesh[Axis::kData] = 2;
    c.zero = 1;
    c.optimizer = optimizer;
    SCOPED_TRACE(testing::Message() << c);
    const double tolerance = optimizer == OptimizerKind::kMuon ? 1e-3 : 1e-5;
    expect_close(train_on_mesh(c), train_on_mesh(on_one_rank(c)), tolerance, 2 * tolerance);
  }
}

TEST_P(Exchange, OneBitAdamSendsSignsBetweenRanksWithTheSameWeights) {
  MeshCase c = context_case(2, GetParam());
  c.optimizer = OptimizerKind::kOneBitAdam;
  c.steps = 6;
  expect_same_bits_for_any_cut(c, [](TrainerOptions& options) {
    options.optimizer.freeze_step = 3;
    options.optimizer.epsilon = 1e-8;
  });
}

INSTANTIATE_TEST_SUITE_P(, Exchange,
                         testing::Values(ContextExchange::kRing, ContextExchange::kUlysses),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// Targets that are ignored lie on one rank only, so the ranks have different numbers of valid ones.
TEST(Context, LossCountsValidTokensOfAllRanks) {
  MeshCase c = context_case(4);
  c.model.dropout = 0;
  c.mini_batch = c.micro_batch = 2;
  c.steps = 1;
  const auto first_loss = [](const MeshCase& c, std::int64_t ignored) {
    const Sequential model = mesh_model(c);
    const StepPlan plan = mesh_plan(c, model);
    double loss = 0, norm = 0;
    run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, mesh_options(c));
      trainer.initialise();
      MiniBatch batch = mesh_batch(c, 0);
      batch.inputs[1].narrow(1, 0, ignored).fill_(kIgnoredTarget);
      batch.valid_tokens = batch.inputs[1].ne(kIgnoredTarget).sum().item<std::int64_t>();
      const StepOutcome outcome = trainer.step(batch, 1e-2);
      if (group.rank() > 0) return;
      loss = outcome.loss;
      norm = outcome.gradient_norm;
    });
    return std::pair(loss, norm);
  };
  for (const std::int64_t ignored : {0, 4, 20, 31}) {
    const auto [loss, norm] = first_loss(c, ignored);
    const auto [expected_loss, expected_norm] = first_loss(on_one_rank(c), ignored);
    EXPECT_NEAR(loss, expected_loss, 1e-6 * expected_loss) << ignored << " tokens ignored";
    EXPECT_NEAR(norm, expected_norm, 1e-5 * expected_norm) << ignored << " tokens ignored";
  }
}

TEST(Context, EvaluationEqualsThatOfOneRank) {
  const auto evaluated = [](const MeshCase& c) {
    const Sequential model = mesh_model(c);
    const StepPlan plan = mesh_plan(c, model);
    double loss = 0;
    run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, mesh_options(c));
      trainer.initialise();
      const double found = trainer.evaluate({mesh_batch(c, 0), mesh_batch(c, 1)});
      if (group.rank() == 0) loss = found;
    });
    return loss;
  };
  for (const ContextExchange exchange : {ContextExchange::kRing, ContextExchange::kUlysses}) {
    MeshCase c = context_case(4, exchange);
    const double expected = evaluated(on_one_rank(c));
    EXPECT_NEAR(evaluated(c), expected, 1e-6 * expected) << name_of(exchange);
  }
}

// The most bytes that a rank has in a step, without weights, gradients and states.
std::int64_t peak_of_activations(const MeshCase& c) {
  const Sequential model = mesh_model(c);
  const StepPlan plan = mesh_plan(c, model);
  std::int64_t most = 0;
  std::mutex mutex;
  run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount& account) {
    Trainer trainer(model, plan, group, mesh_options(c));
    trainer.initialise();
    trainer.step(mesh_batch(c, 0), 1e-2);
    group.barrier();
    const std::int64_t before = account.current_bytes();
    account.reset_peak();
    trainer.step(mesh_batch(c, 1), 1e-2);
    const std::scoped_lock lock(mutex);
    most = std::max(most, account.peak_bytes() - before);
  });
  return most;
}

TEST(Context, LengthOfSamplesGrowsWithRanksInTheSameMemory) {
  constexpr std::int64_t kTokens = 256;  // of a rank
  for (const ContextExchange exchange : {ContextExchange::kRing, ContextExchange::kUlysses}) {
    const auto peak = [&](int ranks) {
      MeshCase c = context_case(ranks, exchange);
      c.model = {.layers = 2, .width = 64, .heads = 8, .vocab = 512, .context = kTokens * ranks};
      c.mini_batch = c.micro_batch = 2;
      c.recompute = "cheap";
      return static_cast<double>(peak_of_activations(c));
    };
    const double one = peak(1);
    for (const int ranks : {2, 4, 8})
      EXPECT_LT(peak(ranks), 1.35 * one) << ranks << " ranks, " << name_of(exchange);
  }
}

}  // namespace
}  // namespace strata
