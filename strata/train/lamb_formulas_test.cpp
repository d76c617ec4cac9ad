// Compares training with LAMB with a regression whose gradients, ratios and updates are written
// here again, in fp64 (You et al. 2020, algorithm 2).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/comm/ranks.h"
#include "strata/train/regression_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

// Three blocks of 1,024 elements, of which the second has parts of both matrices.
constexpr int kFirst = 1200, kSecond = 900, kInputs = kFirst + kSecond;
constexpr int kSamples = 12, kSteps = 8;

const std::vector<WeightSpec> kSpecs{{.name = "bias", .shape = {1}},
                                     {.name = "first", .shape = {1, kFirst}, .decay = true},
                                     {.name = "second", .shape = {1, kSecond}, .decay = true}};

double input_of(int step, int sample, int k) {
  return std::sin(1.3 * step + 2.9 * sample + 0.0137 * k * (1 + k % 7)) * (1 + k % 3);
}
double label_of(int step, int sample) { return 10 * std::sin(5.1 * sample + step); }
double first_value(int k) {
  return k < kFirst ? 0.002 * std::sin(0.3 * k) : 2 * std::cos(0.11 * k);
}

// The bias multiplies 1.
const Regression kRegression{
    .width = 1 + kInputs,
    .samples = kSamples,
    .input = [](int step, int sample, int k) { return k == 0 ? 1 : input_of(step, sample, k - 1); },
    .label = label_of};

const OptimizerOptions kOptions{.kind = OptimizerKind::kLamb,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .epsilon = 1e-6,
                                .weight_decay = 0.1,
                                .min_coeff = 0.01,
                                .max_coeff = 10};

double rate_of(int step) { return 0.01 / (1 + 0.1 * step); }

using Weights = std::map<std::string, std::vector<double>>;

Weights first_weights() {
  Weights weights{{"bias", {0.0}}, {"first", {}}, {"second", {}}};
  for (int k = 0; k < kInputs; ++k)
    weights[k < kFirst ? "first" : "second"].push_back(static_cast<float>(first_value(k)));
  return weights;
}

class Reference {
 public:
  Weights w = first_weights();
  std::map<std::string, std::vector<double>> ratios;

  void step(int update) {
    const Weights gradients = gradients_of(update - 1);
    for (const auto& [name, gradient] : gradients) {
      std::vector<double>&m = m_[name], &v = v_[name], &weight = w[name];
      m.resize(gradient.size());
      v.resize(gradient.size());
      const bool decays = name != "bias";
      std::vector<double> u;
      double of_weight = 0, of_direction = 0;
      for (std::size_t k = 0; k < gradient.size(); ++k) {
        m[k] = 0.9 * m[k] + 0.1 * gradient[k];
        v[k] = 0.99 * v[k] + 0.01 * gradient[k] * gradient[k];
        const double mean = m[k] / (1 - std::pow(0.9, update));
        const double root = std::sqrt(v[k] / (1 - std::pow(0.99, update)));
        u.push_back(mean / (root + 1e-6) + (decays ? 0.1 * weight[k] : 0));
        of_weight += weight[k] * weight[k];
        of_direction += u[k] * u[k];
      }
      double ratio = decays ? std::sqrt(of_weight) / std::sqrt(of_direction) : 1;
      ratio = std::min(10.0, std::max(0.01, ratio));
      ratios[name].push_back(ratio);
      for (std::size_t k = 0; k < u.size(); ++k) weight[k] -= rate_of(update - 1) * ratio * u[k];
    }
  }

 private:
  Weights gradients_of(int step) const {
    Weights gradients{{"bias", {0.0}},
                      {"first", std::vector<double>(kFirst)},
                      {"second", std::vector<double>(kSecond)}};
    for (int i = 0; i < kSamples; ++i) {
      double error = w.at("bias")[0] - label_of(step, i);
      const auto weight = [&](auto& all, int k) -> auto& {
        return k < kFirst ? all.at("first")[static_cast<std::size_t>(k)]
                          : all.at("second")[static_cast<std::size_t>(k - kFirst)];
      };
      for (int k = 0; k < kInputs; ++k) error += input_of(step, i, k) * weight(w, k);
      for (int k = 0; k < kInputs; ++k)
        weight(gradients, k) += error * input_of(step, i, k) / kSamples;
      gradients["bias"][0] += error / kSamples;
    }
    return gradients;
  }

  Weights m_, v_;
};

void set_first_weights(const std::vector<NamedState>& states) {
  const Weights first = first_weights();
  for (const NamedState& state : states) {
    const std::vector<double>& values = first.at(state.name.substr(state.name.rfind('.') + 1));
    for (const Run& run : state.runs)
      for (std::int64_t k = 0; k < run.numel; ++k)
        state.local.data_ptr<float>()[run.local + k] =
            static_cast<float>(values[static_cast<std::size_t>(run.global + k)]);
  }
}

TEST(LambTraining, FollowsFormulas) {
  const Sequential model = regression_model(kSpecs);
  for (const auto& [replicas, zero] : {std::pair(1, 0), {3, 0}, {2, 2}, {3, 3}, {4, 1}}) {
    const StepPlan plan = plan_steps(
        model, {.mesh = {{Axis::kData, replicas}}, .zero = {.stage = zero}, .micro_batch = 2});
    std::vector<std::map<std::string, at::Tensor>> learned(kSteps);
    std::mutex mutex;
    run_thread_ranks({.ranks = replicas}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, {.optimizer = kOptions});
      trainer.fill([](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
        set_first_weights(weights);
      });
      for (int step = 0; step < kSteps; ++step) {
        trainer.step(regression_batch(kRegression, step), rate_of(step));
        const std::vector<NamedState> weights = trainer.owned_weights();
        const std::lock_guard lock(mutex);
        assemble(weights, learned[static_cast<std::size_t>(step)]);
      }
    });
    Reference reference;
    for (int step = 0; step < kSteps; ++step) {
      reference.step(step + 1);
      for (const auto& [name, weight] : learned[static_cast<std::size_t>(step)]) {
        const std::vector<double>& expected = reference.w.at(name.substr(name.rfind('.') + 1));
        ASSERT_EQ(weight.numel(), std::ssize(expected));
        const at::Tensor flat = weight.reshape({-1});
        double largest = 0;
        for (std::size_t k = 0; k < expected.size(); ++k)
          largest = std::max(largest, std::fabs(flat.data_ptr<float>()[k] - expected[k]));
        EXPECT_LT(largest, 5e-6) << replicas << " replicas, zero " << zero << ", update "
                                 << step + 1 << ", " << name;
      }
    }
    // One ratio is the smallest allowed, and the other is between the limits.
    EXPECT_EQ(reference.ratios["first"][0], 0.01);
    EXPECT_GT(reference.ratios["second"][0], 0.1);
    EXPECT_LT(reference.ratios["second"][0], 9);
  }
}

}  // namespace
}  // namespace strata
