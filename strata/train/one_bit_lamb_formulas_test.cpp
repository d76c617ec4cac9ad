// Compares 1-bit LAMB with a regression whose signs, fresh variances and factors are written here
// again, in fp64 (Li et al. 2021, algorithm 1, on momenta divided by the roots of their variances).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/comm/ranks.h"
#include "strata/train/regression_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

// Two matrices and a gain, which have no padding and one scale.
constexpr int kWeights = 3, kWidth = 16, kAll = kWeights * kWidth;
constexpr int kSamples = 13, kSteps = 22;
using Vector = std::array<double, kAll>;

const std::vector<WeightSpec> kSpecs{{.name = "first", .shape = {1, kWidth}, .decay = true},
                                     {.name = "second", .shape = {1, kWidth}, .decay = true},
                                     {.name = "third", .shape = {kWidth}}};

double input_of(int step, int sample, int k) {
  return std::sin(1.3 * step + 2.9 * sample + 0.7 * k * (1 + k)) * (k < kWidth ? 1 : 2);
}

// After the freeze step the labels grow, and so do the gradients.
double label_of(int step, int sample) {
  return (step < 6 ? 2 : 20) * std::sin(5.1 * sample + step);
}

double first_value(int k) { return (k < kWidth ? 0.2 : 1.0) * std::cos(0.37 * k); }

const Regression kRegression{
    .width = kAll, .samples = kSamples, .input = input_of, .label = label_of};

const OptimizerOptions kOptions{.kind = OptimizerKind::kOneBitLamb,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-6,
                                .weight_decay = 0.1,
                                .min_coeff = 0.01,
                                .max_coeff = 0.9,
                                .coeff_beta = 0.8,
                                .factor_min = 0.9,
                                .factor_max = 1.4,
                                .factor_threshold = 0.08,
                                .freeze_step = 5};

double rate_of(int step) { return 0.03 / (1 + 0.1 * step); }

// Takes the message of one bit an element out of x.
Vector message_of(Vector& x) {
  double scale = 0;
  for (const double each : x) scale += std::fabs(each) / kAll;
  Vector message;
  for (int k = 0; k < kAll; ++k) {
    message[k] = x[k] < 0 ? -scale : scale;
    x[k] -= message[k];
  }
  return message;
}

// The algorithm on all replicas.
class Reference {
 public:
  explicit Reference(int replicas) : replicas_(replicas), e_(replicas) {
    for (int k = 0; k < kAll; ++k) w[k] = static_cast<float>(first_value(k));
  }

  Vector w{};
  int below = 0, above = 0, between = 0, changed_most = 0;  // how factors were limited

  void step(int update) {
    if (update <= kOptions.freeze_step) return warm_up(update);
    if (update == kOptions.freeze_step + 1) fresh_ = v_;
    const double most = (1 - kOptions.beta1) / std::sqrt(1 - kOptions.beta2);
    const double frozen = 1 - std::pow(kOptions.beta2, kOptions.freeze_step);
    Vector r;
    for (int k = 0; k < kAll; ++k) r[k] = std::sqrt(v_[k] / frozen) + kOptions.epsilon;
    for (int replica = 0; replica < replicas_; ++replica) {
      const Vector g = gradient(update - 1, replica);
      for (int k = 0; k < kAll; ++k)
        e_[replica][k] += kOptions.beta1 * m_[k] / r[k] +
                          std::clamp((1 - kOptions.beta1) * replicas_ * g[k] / r[k], -most, most);
    }
    const Vector u = mean_direction();
    std::array<double, kWeights> largest{};
    for (int k = 0; k < kAll; ++k) {
      const double g = (u[k] * r[k] - kOptions.beta1 * m_[k]) / (1 - kOptions.beta1);
      m_[k] = u[k] * r[k];
      fresh_[k] = kOptions.beta2 * fresh_[k] + (1 - kOptions.beta2) * g * g;
      const double root = std::sqrt(fresh_[k] / (1 - std::pow(kOptions.beta2, update)));
      largest[k / kWidth] = std::max(largest[k / kWidth], r[k] / (root + kOptions.epsilon));
    }
    for (int weight = 0; weight < kWeights; ++weight) move(update, weight, largest[weight], u);
  }

 private:
  Vector gradient(int step, int replica) const {
    Vector sum{};
    for (int i = kSamples * replica / replicas_; i < kSamples * (replica + 1) / replicas_; ++i) {
      double error = -label_of(step, i);
      for (int k = 0; k < kAll; ++k) error += input_of(step, i, k) * w[k];
      for (int k = 0; k < kAll; ++k) sum[k] += error * input_of(step, i, k) / kSamples;
    }
    return sum;
  }

  void warm_up(int update) {
    Vector u;
    for (int k = 0; k < kAll; ++k) {
      double g = 0;
      for (int replica = 0; replica < replicas_; ++replica) g += gradient(update - 1, replica)[k];
      m_[k] = kOptions.beta1 * m_[k] + (1 - kOptions.beta1) * g;
      v_[k] = kOptions.beta2 * v_[k] + (1 - kOptions.beta2) * g * g;
      u[k] = m_[k] / (1 - std::pow(kOptions.beta1, update)) /
             (std::sqrt(v_[k] / (1 - std::pow(kOptions.beta2, update))) + kOptions.epsilon);
      if (k < 2 * kWidth) u[k] += kOptions.weight_decay * w[k];
    }
    for (int weight = 0; weight < kWeights; ++weight) {
      double of_weight = 0, of_direction = 0;
      for (int k = weight * kWidth; k < (weight + 1) * kWidth; ++k) {
        of_weight += w[k] * w[k];
        of_direction += u[k] * u[k];
      }
      const double ratio = weight == 2 ? 1
                                       : std::clamp(std::sqrt(of_weight / of_direction),
                                                    kOptions.min_coeff, kOptions.max_coeff);
      // A mean from 0, whose bias is corrected after the last ratio.
      c_[weight] = kOptions.coeff_beta * c_[weight] + (1 - kOptions.coeff_beta) * ratio;
      for (int k = weight * kWidth; k < (weight + 1) * kWidth; ++k)
        w[k] -= rate_of(update - 1) * ratio * u[k];
    }
  }

  // One replica sends nothing.
  Vector mean_direction() {
    if (replicas_ == 1) return std::exchange(e_[0], Vector{});
    for (Vector& each : e_) {
      const Vector message = message_of(each);
      for (int k = 0; k < kAll; ++k) server_[k] += message[k] / replicas_;
    }
    return message_of(server_);
  }

  void move(int update, int weight, double largest, const Vector& u) {
    double ratio = 1;
    if (weight < 2) {
      double& factor = factor_[weight];
      const double wanted = std::clamp(largest, kOptions.factor_min, kOptions.factor_max);
      below += largest < kOptions.factor_min ? 1 : 0;
      above += largest > kOptions.factor_max ? 1 : 0;
      const double least = factor * (1 - kOptions.factor_threshold);
      const double most = factor * (1 + kOptions.factor_threshold);
      (wanted < least || wanted > most ? changed_most : between) += 1;
      factor = std::clamp(wanted, least, most);
      ratio = c_[weight] / (1 - std::pow(kOptions.coeff_beta, kOptions.freeze_step)) * factor;
    }
    const double corrected = 1 - std::pow(kOptions.beta1, update);
    const double decay = weight < 2 ? kOptions.weight_decay : 0;
    for (int k = weight * kWidth; k < (weight + 1) * kWidth; ++k)
      w[k] -= rate_of(update - 1) * ratio * (u[k] / corrected + decay * w[k]);
  }

  int replicas_;
  std::vector<Vector> e_;
  Vector m_{}, v_{}, fresh_{}, server_{};
  std::array<double, kWeights> c_{}, factor_{1, 1, 1};
};

void set_first_weights(const std::vector<NamedState>& states) {
  int k = 0;  // the weights have the order of their names
  for (const NamedState& state : states)
    for (std::int64_t i = 0; i < kWidth; ++i)
      state.local.data_ptr<float>()[i] = static_cast<float>(first_value(k++));
}

TEST(OneBitLambTraining, FollowsFormulas) {
  for (const int replicas : {1, 2, 3}) {
    const Sequential model = regression_model(kSpecs);
    const StepPlan plan = plan_steps(model, {.mesh = {{Axis::kData, replicas}}, .micro_batch = 2});
    std::vector<std::vector<Vector>> learned(kSteps, std::vector<Vector>(replicas));
    run_thread_ranks({.ranks = replicas}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, {.optimizer = kOptions});
      trainer.fill([](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
        set_first_weights(weights);
      });
      for (int step = 0; step < kSteps; ++step) {
        trainer.step(regression_batch(kRegression, step), rate_of(step));
        Vector& all = learned[step][group.rank()];
        int k = 0;
        for (const NamedState& weight : trainer.weights()) {
          const at::Tensor values = weight.values();
          for (std::int64_t i = 0; i < kWidth; ++i) all[k++] = values.data_ptr<float>()[i];
        }
      }
    });
    Reference reference(replicas);
    for (int step = 0; step < kSteps; ++step) {
      reference.step(step + 1);
      for (int replica = 0; replica < replicas; ++replica)
        for (int k = 0; k < kAll; ++k)
          ASSERT_NEAR(learned[step][replica][k], reference.w[k], 2e-5)
              << replicas << " replicas, update " << step + 1 << ", replica " << replica << ", "
              << k;
    }
    EXPECT_GT(reference.between, 0);
    EXPECT_GT(reference.changed_most, 0);
    EXPECT_GT(reference.above, 0);
    if (replicas > 1) EXPECT_GT(reference.below, 0);
  }
}

}  // namespace
}  // namespace strata
