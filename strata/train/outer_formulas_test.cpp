// Compares replicas that train apart with a regression whose inner and outer steps are written here
// again, in fp64.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/train/regression_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

using Pair = std::array<double, 2>;

constexpr int kSamples = 7;  // replicas have other numbers of them

// Sample i of a step: its inputs, and its label.
std::array<double, 3> sample_of(int step, int i) {
  const double a = std::sin(1.0 + 3 * step + 5 * i), b = std::cos(2.0 + 7 * step + i);
  return {a, b, 2 * a - b + 0.5 * std::sin(10.0 * i)};
}

const Regression kRegression{
    .width = 2,
    .samples = kSamples,
    .input = [](int step, int i, int k) { return sample_of(step, i)[static_cast<std::size_t>(k)]; },
    .label = [](int step, int i) { return sample_of(step, i)[2]; }};

// What one replica learns: AdamW, or SGD with momentum, without weight decay.
struct Reference {
  OptimizerOptions options;
  Pair w{}, m{}, v{};
  int updates = 0;

  // Returns half the sum of squared errors. Samples [first, last).
  double step(int number, int first, int last, double rate) {
    Pair gradient{};
    double sum = 0;
    for (int i = first; i < last; ++i) {
      const auto [a, b, label] = sample_of(number, i);
      const double error = a * w[0] + b * w[1] - label;
      sum += error * error / 2;
      gradient[0] += error * a / (last - first);
      gradient[1] += error * b / (last - first);
    }
    ++updates;
    for (int k = 0; k < 2; ++k) {
      if (options.kind == OptimizerKind::kSgd) {
        m[k] = options.momentum * m[k] + gradient[k];
        w[k] -= rate * m[k];
        continue;
      }
      m[k] = options.beta1 * m[k] + (1 - options.beta1) * gradient[k];
      v[k] = options.beta2 * v[k] + (1 - options.beta2) * gradient[k] * gradient[k];
      const double mean = m[k] / (1 - std::pow(options.beta1, updates));
      const double square = v[k] / (1 - std::pow(options.beta2, updates));
      w[k] -= rate * mean / (std::sqrt(square) + options.epsilon);
    }
    return sum;
  }
};

struct Learned {
  std::vector<double> losses;
  std::vector<Pair> weights;  // of each replica
};

Learned reference(const OptimizerOptions& optimizer, const OuterOptions& outer, int replicas,
                  int steps, double rate) {
  std::vector<Reference> all(static_cast<std::size_t>(replicas), {.options = optimizer});
  Pair shared{}, velocity{};
  Learned learned;
  for (int step = 0; step < steps; ++step) {
    double sum = 0;
    for (int r = 0; r < replicas; ++r)
      sum += all[static_cast<std::size_t>(r)].step(step, kSamples * r / replicas,
                                                   kSamples * (r + 1) / replicas, rate);
    learned.losses.push_back(sum / kSamples);
    if ((step + 1) % outer.every != 0) continue;
    for (int k = 0; k < 2; ++k) {
      double mean = 0;
      for (const Reference& replica : all) mean += replica.w[k] / replicas;
      const double gradient = shared[k] - mean;
      velocity[k] = outer.momentum * velocity[k] + gradient;
      shared[k] -= outer.learning_rate *
                   (outer.nesterov ? gradient + outer.momentum * velocity[k] : velocity[k]);
      for (Reference& replica : all) replica.w[k] = shared[k];
    }
  }
  for (const Reference& replica : all) learned.weights.push_back(replica.w);
  return learned;
}

Learned trained(const OptimizerOptions& optimizer, const OuterOptions& outer, int replicas,
                int steps, double rate) {
  const Sequential model =
      regression_model({{.name = "weight", .shape = {1, kRegression.width}, .decay = true}});
  const StepPlan plan = plan_steps(
      model, {.mesh = {{Axis::kData, replicas}}, .micro_batch = 2, .replicas_apart = true});
  Learned learned{.losses = {}, .weights = std::vector<Pair>(static_cast<std::size_t>(replicas))};
  run_thread_ranks({.ranks = replicas}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, {.optimizer = optimizer, .outer = outer});
    trainer.fill([](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
      for (const NamedState& weight : weights) weight.local.zero_();
    });
    for (int step = 0; step < steps; ++step) {
      const double loss = trainer.step(regression_batch(kRegression, step), rate).loss;
      if (group.rank() == 0) learned.losses.push_back(loss);
    }
    const at::Tensor weight = trainer.weights().front().values();
    learned.weights[static_cast<std::size_t>(group.rank())] = {weight[0].item<double>(),
                                                               weight[1].item<double>()};
  });
  return learned;
}

TEST(OuterTraining, FollowsFormulas) {
  const std::vector<OuterOptions> outers{
      {.every = 3, .learning_rate = 1, .momentum = 0},
      {.every = 3, .learning_rate = 0.5, .momentum = 0},
      {.every = 2, .learning_rate = 0.7, .momentum = 0.9},
      {.every = 4, .learning_rate = 0.8, .momentum = 0.6, .nesterov = false},
      {.every = 1, .learning_rate = 0.7, .momentum = 0.5}};
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW})
    for (const int replicas : {1, 2, 3})
      for (const OuterOptions& outer : outers) {
        SCOPED_TRACE(testing::Message()
                     << name_of(kind) << ", " << replicas << " replicas, every " << outer.every);
        const OptimizerOptions optimizer{.kind = kind, .weight_decay = 0, .momentum = 0.5};
        constexpr int kSteps = 11;  // ends inside a round of 2, 3 and 4
        const Learned expected = reference(optimizer, outer, replicas, kSteps, 0.05);
        const Learned learned = trained(optimizer, outer, replicas, kSteps, 0.05);
        for (std::size_t i = 0; i < expected.losses.size(); ++i)
          EXPECT_NEAR(learned.losses[i], expected.losses[i], 2e-5) << i;
        for (std::size_t r = 0; r < expected.weights.size(); ++r)
          for (std::size_t k = 0; k < 2; ++k)
            EXPECT_NEAR(learned.weights[r][k], expected.weights[r][k], 1e-5) << r << ' ' << k;
      }
}

}  // namespace
}  // namespace strata
