// Tests the combinations of axes that gave wrong numbers unnoticed elsewhere: findings of issue
// 7452 and issue 1464 of NVIDIA/Megatron-LM. Every mesh takes one step, and its loss, gradient norm
// and every gradient are compared with a Llama in plain ATen (models/plain_llama_test.h), which
// knows no ranks. Each test names the findings that it would show here.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/models/plain_llama_test.h"
#include "strata/train/mesh_run_test.h"

namespace strata {
namespace {

constexpr std::int64_t kSamples = 8, kLength = 16, kVocab = 50;  // 50: slices of uneven widths
constexpr double kTolerance = 5e-5;  // share of the largest element: only the order of sums differs

// Fewer heads of keys. Qwen 3 has gains of normalised heads and, here, a shared embedding; Qwen 2
// has biases of divided matrices.
DecoderOptions example_model(bool qwen2) {
  return completed({.kind = DecoderKind::kLlama,
                    .layers = 2,
                    .width = 32,
                    .heads = 8,
                    .vocab = kVocab,
                    .context = kLength,
                    .tie = !qwen2,
                    .kv_heads = 4,
                    .head_width = 6,
                    .mlp_width = 43,
                    .qkv_bias = qwen2,
                    .qk_norm = !qwen2});
}

struct Example {
  DecoderOptions model;
  at::Tensor tokens, targets;
  double label_smoothing = 0;

  MiniBatch batch() const {
    return {.inputs = {tokens, targets},
            .samples = kSamples,
            .valid_tokens = targets.ne(kIgnoredTarget).sum().item<std::int64_t>()};
  }
};

Example example(bool qwen2 = false) {
  at::manual_seed(7);
  return {.model = example_model(qwen2),
          .tokens = at::randint(kVocab, {kSamples, kLength}, at::kLong),
          .targets = at::randint(kVocab, {kSamples, kLength}, at::kLong)};
}

// Random, also biases and gains: zeros and ones would hide errors.
at::Tensor first_values(const std::string& name, const std::vector<std::int64_t>& shape) {
  at::Generator generator = at::detail::createCPUGenerator(std::hash<std::string>()(name));
  return 0.3 * at::randn(shape, generator);
}

// The results of a step with SGD whose learning rate is 1.
struct Learned {
  double loss = 0, norm = 0;
  std::map<std::string, at::Tensor> gradients;  // times the factor of clipping
};

MeshCase mesh_case(const Example& e, const Mesh& mesh, bool sequence = false, int zero = 0) {
  MeshCase c;
  c.model = e.model;
  c.mesh = mesh;
  c.sequence = sequence;
  c.zero = zero;
  c.schedule = ScheduleKind::k1f1b;
  c.mini_batch = kSamples;
  c.micro_batch = 1;
  c.label_smoothing = e.label_smoothing;
  c.optimizer = OptimizerKind::kSgd;
  c.momentum = 0;
  c.clip = 0;
  return c;
}

void without_decay(TrainerOptions& options) { options.optimizer.weight_decay = 0; }

void set_first_values(Trainer& trainer) {
  trainer.fill([](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
    for (const NamedState& weight : weights)
      assign_whole(weight, first_values(weight.name, weight.shape));
  });
}

Learned learn(const Example& e, const MeshCase& c) {
  Learned learned;
  std::map<std::string, at::Tensor> weights;
  std::mutex mutex;
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group&) {
        set_first_values(trainer);
        const double evaluated = trainer.evaluate({e.batch()});
        const StepOutcome& outcome = trainer.step(e.batch(), 1);
        const double loss = outcome.loss, norm = outcome.gradient_norm;
        const std::vector<NamedState> owned = trainer.owned_weights();
        const std::lock_guard lock(mutex);
        if (learned.loss != 0) {  // every rank knows the same
          EXPECT_EQ(loss, learned.loss);
          EXPECT_EQ(norm, learned.norm);
        }
        if (e.label_smoothing == 0) EXPECT_NEAR(evaluated, loss, 1e-6 * loss);
        learned.loss = loss;
        learned.norm = norm;
        assemble(owned, weights);
      },
      without_decay);
  for (const auto& [name, weight] : weights)
    learned.gradients[name] = first_values(name, weight.sizes().vec()) - weight;
  return learned;
}

Learned learn_in_plain_aten(const Example& e, const std::map<std::string, at::Tensor>& shapes) {
  plain_llama::Weights weights;
  for (const auto& [name, like] : shapes)
    weights[name] = first_values(name, like.sizes().vec()).requires_grad_(true);
  if (e.model.tie) weights["head.weight"] = weights.at("embed.tokens.weight");
  const at::Tensor loss =
      plain_llama::mean_loss(weights, e.model, e.tokens, e.targets, e.label_smoothing);
  loss.backward();
  Learned learned{.loss = loss.item<double>()};
  double squares = 0;
  for (const auto& [name, like] : shapes) {
    learned.gradients[name] = weights.at(name).grad();
    squares += weights.at(name).grad().to(at::kDouble).square().sum().item<double>();
  }
  learned.norm = std::sqrt(squares);
  return learned;
}

void expect_as_in_plain_aten(const Example& e, const MeshCase& c) {
  SCOPED_TRACE(testing::Message() << c);
  const Learned run = learn(e, c);
  const Learned expected = learn_in_plain_aten(e, run.gradients);
  EXPECT_GT(run.gradients.size(), 15u);
  EXPECT_NEAR(run.loss, expected.loss, 1e-5 * expected.loss);
  EXPECT_NEAR(run.norm, expected.norm, 1e-5 * expected.norm);
  for (const auto& [name, gradient] : run.gradients) {
    const at::Tensor& right = expected.gradients.at(name);
    EXPECT_LE((gradient - right).abs().max().item<double>(),
              kTolerance * right.abs().max().item<double>())
        << name;
  }
}

const std::vector<Mesh> kMeshes{
    {},
    {{Axis::kTensor, 2}},
    {{Axis::kTensor, 4}},
    {{Axis::kContext, 4}},
    {{Axis::kData, 4}},
    {{Axis::kData, 2}, {Axis::kTensor, 2}},
    {{Axis::kData, 2}, {Axis::kContext, 2}},
    {{Axis::kContext, 2}, {Axis::kTensor, 2}},
    {{Axis::kPipeline, 3}, {Axis::kData, 2}},
    {{Axis::kPipeline, 2}, {Axis::kData, 2}, {Axis::kContext, 2}, {Axis::kTensor, 2}},
};

// Two settings of every mesh: whole sequences, ring attention and ZeRO 0; sequences that ranks of
// tp divide, Ulysses with two ranks of cp, and ZeRO 3.
void expect_as_in_plain_aten_on_every_mesh(const Example& e) {
  for (const Mesh& mesh : kMeshes)
    for (const bool second : {false, true}) {
      MeshCase c = mesh_case(e, mesh, second && mesh[Axis::kTensor] > 1, second ? 3 : 0);
      if (second && mesh[Axis::kContext] == 2) c.exchange = ContextExchange::kUlysses;
      expect_as_in_plain_aten(e, c);
    }
}

// Issue 1464: gradients of attention were wrong with cp. Findings 5, 6 and 7: ranks of a wrong
// group added their parts. Finding 11: the gradient of a gain that every rank of tp applies to its
// own heads lacked the other ranks' heads.
TEST(CombinedAxes, HaveGradientsOfPlainAten) {
  for (const bool qwen2 : {false, true}) expect_as_in_plain_aten_on_every_mesh(example(qwen2));
}

// Finding 1: each rank spread the smoothed label over its own slice of the vocabulary. Another
// finding: a loss of divided vocabularies was given all logits.
TEST(CombinedAxes, SmoothLabelsOverWholeVocabulary) {
  Example e = example();
  e.label_smoothing = 0.3;
  expect_as_in_plain_aten_on_every_mesh(e);
}

// Findings 3 and 9: a rank divided its loss by its own number of targets, not by that of all
// replicas and parts of samples.
TEST(CombinedAxes, DivideLossByTargetsOfAllRanks) {
  Example e = example();
  // Of four replicas, the first has one target and the second none.
  e.targets.narrow(0, 1, 3).fill_(kIgnoredTarget);
  e.targets.narrow(0, 0, 1).narrow(1, 1, kLength - 1).fill_(kIgnoredTarget);
  // Of these samples only the last tokens have targets.
  e.targets.narrow(0, 6, 2).narrow(1, 0, 11).fill_(kIgnoredTarget);
  e.label_smoothing = 0.1;
  expect_as_in_plain_aten_on_every_mesh(e);
}

// One target in all: every rank but one has a loss of zero.
TEST(CombinedAxes, LearnFromOneTarget) {
  Example e = example();
  const at::Tensor one = e.targets[5][9].clone();
  e.targets.fill_(kIgnoredTarget);
  e.targets[5][9].copy_(one);
  expect_as_in_plain_aten_on_every_mesh(e);
}

// Finding 10: a router of experts, which Strata has not, replaced its counts of tokens by sums over
// all ranks and went on with those. The counts of a loss could do the same.
TEST(CombinedAxes, EveryStepCountsItsOwnTargets) {
  const Example full = example();
  Example few = example();
  few.targets.narrow(1, 2, kLength - 2).fill_(kIgnoredTarget);
  for (const Mesh& mesh : kMeshes)
    on_mesh_ranks(
        mesh_case(full, mesh),
        [&](Trainer& trainer, Group&) {
          set_first_values(trainer);
          std::vector<double> losses;  // a learning rate of 0 keeps the weights
          for (const bool fewer : {true, false, true, false})
            losses.push_back(trainer.step((fewer ? few : full).batch(), 0).loss);
          EXPECT_EQ(losses[0], losses[2]);
          EXPECT_EQ(losses[1], losses[3]);
          EXPECT_NE(losses[0], losses[1]);
        },
        without_decay);
}

// Finding 8: divided weights counted on one rank only in the norm that clips.
TEST(CombinedAxes, ClipByNormOfWholeGradient) {
  constexpr double kClip = 0.01;
  const Example e = example();
  for (const Mesh& mesh : kMeshes)
    for (const int zero : {0, 3}) {
      MeshCase c = mesh_case(e, mesh, /*sequence=*/mesh[Axis::kTensor] == 4, zero);
      c.clip = kClip;
      SCOPED_TRACE(testing::Message() << c);
      double squares = 0;
      const Learned run = learn(e, c);
      for (const auto& [name, gradient] : run.gradients)
        squares += gradient.to(at::kDouble).square().sum().item<double>();
      EXPECT_GT(run.norm, 10 * kClip);
      EXPECT_NEAR(std::sqrt(squares), kClip, 1e-4 * kClip);
    }
}

}  // namespace
}  // namespace strata
