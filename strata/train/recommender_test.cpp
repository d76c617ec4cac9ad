// Tests recommenders on any mesh: the gradients of embeddings, the statistics of BatchNorm, what is
// bit-equal and what is within a tolerance.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/saver.h"
#include "strata/comm/ranks.h"
#include "strata/measure/byte_costs.h"
#include "strata/models/recommender.h"
#include "strata/nn/graph/initialise.h"
#include "strata/nn/ops/linear.h"
#include "strata/nn/ops/logistic_loss.h"
#include "strata/plan/search/planner.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

const RecommenderInputs kInputs{.numeric = 5, .row_widths = {8, 8, 16, 8}};

struct RecommenderCase {
  RecommenderOptions model;
  Mesh mesh = {};
  ScheduleKind schedule = ScheduleKind::kGpipe;
  int virtual_stages = 1;
  bool recompute = false;
  int zero = 0;
  int shard_ranks = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  OuterOptions outer = {};
  LayerTiers tiers = {};
  std::int64_t mini_batch = 24;
  std::int64_t micro_batch = 4;
  int steps = 3;
  double rate = 1e-2;
};

struct RecommenderRecord {
  std::vector<double> losses, norms;
  std::vector<at::Tensor> row_gradients;  ///< one per step, for the whole mini-batch
  std::vector<float> scores;              ///< of another mini-batch, after the last step
  double score_loss = 0;
  std::map<std::string, at::Tensor> weights, slots;
};

MiniBatch click_batch(std::int64_t samples, int step) {
  at::Generator generator = at::detail::createCPUGenerator(100 + step);
  const auto normal = [&](std::int64_t width) {
    return at::randn({samples, width}, generator, at::TensorOptions(at::kFloat));
  };
  MiniBatch batch{.inputs = {normal(kInputs.numeric), normal(kInputs.rows()),
                             normal(1).view({-1}).gt(0.5).to(at::kFloat)},
                  .samples = samples};
  batch.inputs[2][1] = static_cast<float>(kIgnoredTarget);
  batch.valid_tokens = samples - 1;
  return batch;
}

StepPlan click_plan(const RecommenderCase& c, const Sequential& model) {
  const int stages = c.mesh[Axis::kPipeline] * c.virtual_stages;
  StepDecisions decisions{.schedule = c.schedule,
                          .mesh = c.mesh,
                          .virtual_stages = c.virtual_stages,
                          .zero = {.stage = c.zero, .shard_ranks = c.shard_ranks},
                          .micro_batch = c.micro_batch,
                          .replicas_apart = c.outer.is_on()};
  for (int stage = 0; stage <= stages; ++stage)
    decisions.partition.bounds.push_back(model.num_layers() * stage / stages);
  for (int layer = 0; layer < model.num_layers(); ++layer)
    if (c.recompute && model.layer(layer).recomputable()) decisions.recompute.add(layer);
  if (c.tiers.updates_on_host())
    decisions.tiers = {.layers = std::vector(model.num_layers(), c.tiers), .window = 2};
  return plan_steps(model, std::move(decisions));
}

void add_part(at::Tensor& whole, const ReplicaTensor& part, std::int64_t samples) {
  if (!part.values.defined()) return;
  if (!whole.defined()) whole = at::full({samples, part.values.size(1)}, std::nan(""));
  whole.narrow(0, part.first_sample, part.values.size(0)).copy_(part.values);
}

// `start`: replaces initial values; `end`: called after the last step.
RecommenderRecord train_recommender(const RecommenderCase& c,
                                    const std::function<void(Trainer&)>& start = {},
                                    const std::function<void(Trainer&)>& end = {}) {
  const Sequential model = make_recommender(c.model, kInputs);
  const StepPlan plan = click_plan(c, model);
  RecommenderRecord record;
  record.row_gradients.resize(c.steps);
  record.scores.resize(c.mini_batch);
  std::mutex mutex;
  run_thread_ranks({.ranks = c.mesh.size()}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group,
                    {.machine = {.seed = 3, .clip = 0.5},
                     .optimizer = {.kind = c.optimizer,
                                   .epsilon = 1e-3,
                                   .freeze_step = 1,
                                   .local_doubling = 2,
                                   .local_most = 2},
                     .outer = c.outer});
    start ? start(trainer) : trainer.initialise();
    for (int step = static_cast<int>(trainer.steps_done()); step < c.steps; ++step) {
      const StepOutcome outcome = trainer.step(click_batch(c.mini_batch, step), c.rate);
      const std::lock_guard lock(mutex);
      add_part(record.row_gradients[step], trainer.input_gradient("rows"), c.mini_batch);
      if (group.rank() > 0) continue;
      record.losses.push_back(outcome.loss);
      record.norms.push_back(outcome.gradient_norm);
    }
    if (end) end(trainer);
    const ReplicaScores scores = trainer.score(click_batch(c.mini_batch, 99));
    const std::lock_guard lock(mutex);
    const auto scored = static_cast<std::int64_t>(scores.values.size());
    EXPECT_LE(scores.first_sample + scored, c.mini_batch);
    std::copy_n(scores.values.begin(), std::min(scored, c.mini_batch - scores.first_sample),
                record.scores.begin() + scores.first_sample);
    record.score_loss = scores.loss;
    assemble(trainer.owned_weights(), record.weights);
    assemble(trainer.owned_slots(), record.slots);
  });
  return record;
}

void expect_same(const RecommenderRecord& run, const RecommenderRecord& reference) {
  EXPECT_EQ(run.losses, reference.losses);
  EXPECT_EQ(run.norms, reference.norms);
  EXPECT_EQ(run.scores, reference.scores);
  EXPECT_EQ(run.score_loss, reference.score_loss);
  for (std::size_t step = 0; step < reference.row_gradients.size(); ++step)
    EXPECT_TRUE(at::equal(run.row_gradients[step], reference.row_gradients[step])) << step;
  ASSERT_EQ(run.weights.size(), reference.weights.size());
  for (const auto& [name, weight] : reference.weights)
    EXPECT_TRUE(at::equal(run.weights.at(name), weight)) << name;
  ASSERT_EQ(run.slots.size(), reference.slots.size());
  for (const auto& [name, slot] : reference.slots)
    EXPECT_TRUE(at::equal(run.slots.at(name), slot)) << name;
}

void expect_near(const RecommenderRecord& run, const RecommenderRecord& reference) {
  const auto near = [](const at::Tensor& a, const at::Tensor& b, const std::string& what) {
    EXPECT_LE((a - b).abs().max().item<double>(), 2e-5) << what;
  };
  for (std::size_t step = 0; step < reference.losses.size(); ++step) {
    EXPECT_NEAR(run.losses[step], reference.losses[step], 1e-5 * reference.losses[step]);
    near(run.row_gradients[step], reference.row_gradients[step], "rows");
  }
  for (const auto& [name, weight] : reference.weights) near(run.weights.at(name), weight, name);
}

RecommenderOptions of_kind(RecommenderKind kind, BatchNormPlace norm = BatchNormPlace::kAll) {
  RecommenderOptions options{.kind = kind, .top = {12, 8}, .dropout = 0.2, .batch_norm = norm};
  if (kind == RecommenderKind::kDlrm) options.bottom = {12, 8};
  if (kind == RecommenderKind::kDeepWide) options.bottom = {6, 10};
  return options;
}

class Recommenders : public testing::TestWithParam<RecommenderKind> {};

TEST_P(Recommenders, TrainSameBitsForAnyCutAndOrder) {
  const RecommenderOptions model = of_kind(GetParam());
  const RecommenderRecord reference = train_recommender({.model = model});
  EXPECT_NE(reference.losses.front(), reference.losses.back());
  using enum ScheduleKind;
  const LayerTiers host{Tier::kHost, Tier::kHost, Tier::kHost, Tier::kHost};
  for (const RecommenderCase& c :
       {RecommenderCase{.model = model, .mesh = {{Axis::kPipeline, 2}}},
        RecommenderCase{
            .model = model, .mesh = {{Axis::kPipeline, 3}}, .schedule = k1f1b, .recompute = true},
        RecommenderCase{.model = model,
                        .mesh = {{Axis::kPipeline, 2}},
                        .schedule = kInterleaved,
                        .virtual_stages = 2},
        RecommenderCase{.model = model, .schedule = k1f1b, .recompute = true},
        RecommenderCase{.model = model, .recompute = true, .tiers = host},
        RecommenderCase{.model = model, .schedule = kVertical, .tiers = host}}) {
    SCOPED_TRACE(std::to_string(c.mesh[Axis::kPipeline]) + " " + name_of(c.schedule));
    expect_same(train_recommender(c), reference);
  }
}

TEST_P(Recommenders, TrainSameBitsForAnyShardingAmongReplicas) {
  RecommenderCase c{.model = of_kind(GetParam()), .mesh = {{Axis::kData, 2}}};
  const RecommenderRecord reference = train_recommender(c);
  for (const int zero : {1, 2, 3}) {
    c.zero = zero;
    SCOPED_TRACE(zero);
    expect_same(train_recommender(c), reference);
  }
  c.mesh[Axis::kPipeline] = 2;
  expect_same(train_recommender(c), reference);
}

// Running statistics, too, are those of a shard.
TEST_P(Recommenders, TrainSameBitsForAnyShardingInGroupsThatSendSigns) {
  for (const OptimizerKind kind : {OptimizerKind::kOneBitAdam, OptimizerKind::kZeroOneAdam}) {
    RecommenderCase c{
        .model = of_kind(GetParam()), .mesh = {{Axis::kData, 4}}, .zero = 1, .shard_ranks = 2};
    c.optimizer = kind;
    c.steps = 6;  // 0/1 Adam ends inside a round
    const RecommenderRecord reference = train_recommender(c);
    EXPECT_NE(reference.losses.front(), reference.losses.back());
    c.zero = 3;
    expect_same(train_recommender(c), reference);
    c.mesh[Axis::kPipeline] = 2;
    expect_same(train_recommender(c), reference);
  }
}

TEST_P(Recommenders, ManyMicroBatchesAndReplicasLearnSameAsOne) {
  const RecommenderOptions model = of_kind(GetParam(), BatchNormPlace::kNone);
  const RecommenderRecord whole = train_recommender({.model = model, .micro_batch = 24});
  expect_near(train_recommender({.model = model, .micro_batch = 5}), whole);
  expect_near(train_recommender({.model = model, .mesh = {{Axis::kData, 3}}}), whole);
  expect_near(train_recommender(
                  {.model = model, .mesh = {{Axis::kPipeline, 2}, {Axis::kData, 2}}, .zero = 3}),
              whole);
}

// The input of the first norms does not depend on how a mini-batch is cut, so their running
// statistics equal those of PyTorch's layer over the whole mini-batch.
TEST(RunningStatistics, CoverAllMicroBatchesAndReplicas) {
  const RecommenderOptions model = of_kind(RecommenderKind::kDeepWide);
  const Sequential net = make_recommender(model, kInputs);
  const auto first_value = [&](const std::string& name) {
    for (const WeightSpec& spec : net.layout(0).specs) {
      if (spec.name != name) continue;
      at::Tensor weight = at::zeros(spec.shape);
      initialise(weight, spec, net.name(0), /*seed=*/3);
      return weight;
    }
    return at::Tensor();
  };
  const std::vector<at::Tensor> inputs = click_batch(24, 0).inputs;
  const LayerTiers host{Tier::kHost, Tier::kHost, Tier::kHost, Tier::kHost};
  for (RecommenderCase c :
       {RecommenderCase{.micro_batch = 24}, RecommenderCase{.micro_batch = 5},
        RecommenderCase{.recompute = true, .micro_batch = 3},
        RecommenderCase{.mesh = {{Axis::kData, 3}}, .micro_batch = 4},
        RecommenderCase{
            .mesh = {{Axis::kPipeline, 2}, {Axis::kData, 2}}, .zero = 3, .micro_batch = 4},
        RecommenderCase{.mesh = {{Axis::kData, 2}}, .tiers = host, .micro_batch = 4},
        RecommenderCase{.mesh = {{Axis::kData, 4}},
                        .zero = 2,
                        .shard_ranks = 2,
                        .optimizer = OptimizerKind::kOneBitAdam}}) {
    c.model = model;
    c.steps = 1;
    SCOPED_TRACE(std::to_string(c.mesh[Axis::kData]) + " replicas, micro-batches of " +
                 std::to_string(c.micro_batch));
    const std::map<std::string, at::Tensor> weights = train_recommender(c).weights;
    for (const auto& [part, x] : {std::pair("numeric", inputs[0]), {"rows", inputs[1]}}) {
      const std::string name = part;
      const at::Tensor h =
          at::linear(x, first_value(name + ".weight"), first_value(name + ".bias"));
      at::Tensor mean = at::zeros({h.size(1)}), variance = at::ones({h.size(1)});
      at::batch_norm(h, {}, {}, mean, variance, true, /*momentum=*/0.1, 1e-5, false);
      const std::string norm = "input." + name + ".norm.running_";
      EXPECT_TRUE(at::allclose(weights.at(norm + "mean"), mean, 1e-6, 1e-7));
      EXPECT_TRUE(at::allclose(weights.at(norm + "var"), variance, 1e-6, 1e-7));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Recommenders,
                         testing::Values(RecommenderKind::kDlrm, RecommenderKind::kDcn,
                                         RecommenderKind::kDeepWide),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// 7 samples for 4 replicas: padding has no gradient and no score.
TEST(InputGradients, ExcludePadding) {
  const RecommenderOptions model = of_kind(RecommenderKind::kDlrm, BatchNormPlace::kNone);
  const RecommenderRecord padded = train_recommender(
      {.model = model, .mesh = {{Axis::kData, 4}}, .mini_batch = 7, .micro_batch = 1, .steps = 1});
  const RecommenderRecord whole =
      train_recommender({.model = model, .mini_batch = 7, .micro_batch = 7, .steps = 1});
  expect_near(padded, whole);
  EXPECT_FALSE(padded.row_gradients[0].isnan().any().item<bool>());
  EXPECT_EQ(whole.row_gradients[0][1].abs().max().item<float>(), 0);  // its label is ignored
  EXPECT_GT(whole.row_gradients[0][2].abs().max().item<float>(), 0);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(padded.scores[i], whole.scores[i], 1e-4);
}

// A product of the embeddings in the precision of its weight, and its loss.
class OneProduct final : public Layer {
 public:
  std::vector<WeightSpec> weights() const override {
    return {{.name = "weight", .shape = {1, kInputs.rows()}, .init = {Init::Kind::kNormal, 0.2}}};
  }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override {
    return {{.shape = {}}};
  }
  bool is_loss() const override { return true; }
  std::vector<at::Tensor> forward(const ForwardContext& context,
                                  std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> inputs) const override {
    const at::Tensor z =
        strata::linear(inputs[0].to(weights[0].scalar_type()), weights[0], at::Tensor());
    return {logistic_loss(z.to(at::kFloat).view({-1}), inputs[1], context)};
  }
};

TEST(InputGradients, ExcludeLossScale) {
  at::Tensor gradients[2];
  for (const at::ScalarType precision : {at::kFloat, at::kHalf}) {
    Sequential model({"numeric", "rows", "labels"}, {}, precision);
    model.want_gradient("rows");
    model.add("score", std::make_shared<OneProduct>(), {"rows", "labels"}, {"loss"});
    const StepPlan plan = click_plan({}, model);
    run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, {.precision = precision});
      trainer.initialise();
      trainer.gradient_step(click_batch(24, 0));
      gradients[precision == at::kHalf] = trainer.input_gradient("rows").values.clone();
    });
  }
  const double largest = gradients[0].abs().max().item<double>();
  EXPECT_GT(largest, 1e-3);
  EXPECT_LT((gradients[1] - gradients[0]).abs().max().item<double>(), 0.01 * largest);
}

TEST(InputGradients, OutliveNextStep) {
  const Sequential model = make_recommender(of_kind(RecommenderKind::kDcn), kInputs);
  const StepPlan plan = click_plan({}, model);
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group);
    trainer.initialise();
    trainer.step(click_batch(8, 0), 1e-2);
    const at::Tensor first = trainer.input_gradient("rows").values, copy = first.clone();
    trainer.step(click_batch(8, 1), 1e-2);
    EXPECT_TRUE(at::equal(first, copy));
    EXPECT_FALSE(at::equal(first, trainer.input_gradient("rows").values));
  });
}

// Weights stay where they are with a rate of 0, so statistics do not depend on the optimizer.
TEST(RunningStatistics, MoveInUpdatesBySignsAsInOthers) {
  RecommenderCase c{
      .model = of_kind(RecommenderKind::kDlrm), .mesh = {{Axis::kData, 4}}, .steps = 6, .rate = 0};
  const RecommenderRecord adamw = train_recommender(c);
  for (const OptimizerKind kind : {OptimizerKind::kOneBitAdam, OptimizerKind::kZeroOneAdam})
    for (const int zero : {0, 1, 3}) {
      c.optimizer = kind;
      c.zero = zero;
      c.shard_ranks = zero > 0 ? 2 : 0;
      const RecommenderRecord run = train_recommender(c);
      for (const auto& [name, weight] : adamw.weights)
        EXPECT_LE((run.weights.at(name) - weight).abs().max().item<double>(), 1e-6)
            << name << ", " << name_of(kind) << ", zero " << zero;
    }
}

// Each replica has those of its own samples; the model's, at the end of a round or inside it, are
// their mean.
TEST(RunningStatistics, OfReplicasThatTrainApartAreAveraged) {
  const Sequential net = make_recommender(of_kind(RecommenderKind::kDeepWide), kInputs);
  const auto first_value = [&](const std::string& name) {
    for (const WeightSpec& spec : net.layout(0).specs) {
      if (spec.name != name) continue;
      at::Tensor weight = at::zeros(spec.shape);
      initialise(weight, spec, net.name(0), /*seed=*/3);
      return weight;
    }
    return at::Tensor();
  };
  const at::Tensor numeric = click_batch(24, 0).inputs[0];
  for (const std::int64_t every : {1, 2}) {
    RecommenderCase c{.model = of_kind(RecommenderKind::kDeepWide),
                      .mesh = {{Axis::kPipeline, 2}, {Axis::kData, 2}}};
    c.outer = {.every = every, .learning_rate = 1, .momentum = 0};
    c.micro_batch = 12;
    c.steps = 1;
    const RecommenderRecord run = train_recommender(c);
    at::Tensor mean, variance;
    for (const int half : {0, 1}) {
      const at::Tensor h = at::linear(numeric.narrow(0, 12 * half, 12),
                                      first_value("numeric.weight"), first_value("numeric.bias"));
      at::Tensor own_mean = at::zeros({h.size(1)}), own_variance = at::ones({h.size(1)});
      at::batch_norm(h, {}, {}, own_mean, own_variance, true, /*momentum=*/0.1, 1e-5, false);
      mean = half == 0 ? own_mean / 2 : mean + own_mean / 2;
      variance = half == 0 ? own_variance / 2 : variance + own_variance / 2;
    }
    EXPECT_TRUE(at::allclose(run.weights.at("input.numeric.norm.running_mean"), mean, 1e-5, 1e-6));
    EXPECT_TRUE(
        at::allclose(run.weights.at("input.numeric.norm.running_var"), variance, 1e-5, 1e-6));
  }
}

// They are weights in a checkpoint, but the optimizer and the norm ignore them.
TEST(RunningStatistics, HaveNoSlotsOrGradients) {
  const Sequential model = make_recommender(of_kind(RecommenderKind::kDlrm), kInputs);
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, click_plan({}, model), group);
    trainer.initialise();
    const StepOutcome outcome = trainer.gradient_step(click_batch(24, 0));
    double squares = 0;
    for (const NamedState& state : trainer.owned_gradients()) {
      EXPECT_EQ(state.name.find("running"), std::string::npos);
      squares += state.tensor().to(at::kDouble).square().sum().item<double>();
    }
    EXPECT_NEAR(outcome.gradient_norm, std::sqrt(squares), 1e-6 * outcome.gradient_norm);
    int statistics = 0;
    for (const NamedState& state : trainer.weights())
      statistics += state.name.find("running") != std::string::npos;
    EXPECT_EQ(statistics, 8);
    for (const NamedState& state : trainer.slots())
      EXPECT_EQ(state.name.find("running"), std::string::npos);
  });
}

TEST(RunningStatistics, ResumeFromCheckpointOfDifferentMesh) {
  RecommenderCase c{.model = of_kind(RecommenderKind::kDeepWide), .mesh = {{Axis::kData, 2}}};
  const RecommenderRecord whole = train_recommender(c);
  const CheckpointModel model("{}");
  const ScratchFolder folder;
  RecommenderCase first = c;
  first.mesh[Axis::kPipeline] = 2;
  first.zero = 3;
  first.steps = 2;
  train_recommender(first, {}, [&](Trainer& trainer) {
    const Group& world = trainer.groups().world;
    CheckpointSaver saver({.folder = folder.path("saved"), .model = model}, world,
                          world.subgroup(first.mesh.stage_ranks(world.rank()), "stage"));
    saver.save({.steps_done = trainer.steps_done()}, trainer.owned_weights(),
               trainer.owned_slots());
    saver.wait();
  });
  const RecommenderRecord rest = train_recommender(
      c, [&](Trainer& trainer) { load_trainer(trainer, model, folder.path("saved")); });
  EXPECT_EQ(rest.losses, std::vector<double>{whole.losses.back()});
  EXPECT_EQ(rest.scores, whole.scores);
  for (const auto& [name, weight] : whole.weights)
    EXPECT_TRUE(at::equal(rest.weights.at(name), weight)) << name;
}

class RecommenderMemory : public testing::TestWithParam<std::tuple<RecommenderKind, int>> {};

TEST_P(RecommenderMemory, IsCloseToMeasuredPeak) {
  const auto [kind, ranks] = GetParam();
  const RecommenderInputs inputs{.numeric = 16, .row_widths = std::vector<std::int64_t>(12, 32)};
  RecommenderOptions options = of_kind(kind);
  options.top = {256, 128};
  if (kind == RecommenderKind::kDlrm) options.bottom = {128, 32};
  if (kind == RecommenderKind::kDeepWide) options.bottom = {64, 256};
  const Sequential model = make_recommender(options, inputs);
  constexpr std::int64_t kSamples = 1024, kMicroBatch = 256;
  CostRequest request{.batch_inputs = recommender_batch(inputs, kMicroBatch),
                      .samples = kSamples,
                      .micro_batch = kMicroBatch};
  const CostTable costs = byte_costs(model, request);
  const Plan plan = make_plan({.dataflow = model.dataflow(),
                               .costs = costs,
                               .micro_batches = 4,
                               .memory = {.recompute = RecomputeMode::kCheap},
                               .micro_batch = kMicroBatch,
                               .mesh = {.axes = {{Axis::kPipeline, ranks}}}});
  run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount& account) {
    Trainer trainer(model, plan.steps, group, {.machine = {.clip = 1.0}});
    trainer.initialise();
    const auto batch = [&] {
      return MiniBatch{.inputs = {at::randn({kSamples, inputs.numeric}),
                                  at::randn({kSamples, inputs.rows()}), at::zeros({kSamples})},
                       .samples = kSamples,
                       .valid_tokens = kSamples};
    };
    const MiniBatch same = batch();
    trainer.step(same, 1e-3);
    group.barrier();
    account.reset_peak();
    group.barrier();
    trainer.step(same, 1e-3);
    const auto peak = static_cast<double>(account.peak_bytes());
    const auto predicted = static_cast<double>(plan.ledger[group.rank()].peak_bytes);
    // A sent tensor is charged until the receiver has taken it, which may be earlier than
    // predicted.
    EXPECT_GT(predicted / peak, 0.95) << "rank " << group.rank();
    EXPECT_LT(predicted / peak, group.size() == 1 ? 1.05 : 1.15) << "rank " << group.rank();
    group.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecommenderMemory,
                         testing::Combine(testing::Values(RecommenderKind::kDlrm,
                                                          RecommenderKind::kDcn,
                                                          RecommenderKind::kDeepWide),
                                          testing::Values(1, 2)));

}  // namespace
}  // namespace strata
