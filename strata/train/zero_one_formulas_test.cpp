// Compares 0/1 Adam with a regression whose refreshes, signs and rounds are written here again, in
// fp64 (Lu et al. 2022, algorithm 1, on momenta divided by the roots of their variances).
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/device/device.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

constexpr int kWidth = 16;  // one part of a layer, without padding
constexpr int kSamples = 13;
using Vector = std::array<double, kWidth>;

struct Products final : Layer {
  std::vector<WeightSpec> weights() const override {
    return {{.name = "weight", .shape = {1, kWidth}, .decay = true}};
  }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec> x) const override {
    return {{{x[0].shape[0], 1}}};
  }
  std::vector<at::Tensor> forward(const ForwardContext&, std::span<const at::Tensor> weights,
                                  std::span<const at::Tensor> x) const override {
    return {at::matmul(x[0], weights[0].t())};
  }
};

struct HalfSquaredError final : Layer {
  bool is_loss() const override { return true; }
  std::vector<WeightSpec> weights() const override { return {}; }
  std::vector<TensorSpec> outputs(std::span<const TensorSpec>) const override { return {{}}; }
  std::vector<at::Tensor> forward(const ForwardContext& context, std::span<const at::Tensor>,
                                  std::span<const at::Tensor> x) const override {
    const at::Tensor sum = (x[0].sum(1) - x[1]).square().sum() / 2;
    context.loss->sum += sum.item<double>();
    return {sum * context.loss_scale};
  }
};

double input_of(int step, int sample, int k) {
  return std::sin(1.3 * step + 2.9 * sample + 0.7 * k * (1 + k));
}

double label_of(int step, int sample) {
  double label = 0.3 * std::sin(5.1 * sample + step);
  for (int k = 0; k < kWidth; ++k) label += input_of(step, sample, k) * std::cos(2.0 * k);
  return label;
}

MiniBatch batch_of(int step) {
  const at::Tensor x = at::empty({kSamples, kWidth}, host_options(at::kFloat));
  const at::Tensor y = at::empty({kSamples}, host_options(at::kFloat));
  for (int i = 0; i < kSamples; ++i) {
    for (int k = 0; k < kWidth; ++k)
      x.data_ptr<float>()[i * kWidth + k] = static_cast<float>(input_of(step, i, k));
    y.data_ptr<float>()[i] = static_cast<float>(label_of(step, i));
  }
  return {.inputs = {x, y}, .samples = kSamples, .valid_tokens = kSamples};
}

const OptimizerOptions kOptions{.kind = OptimizerKind::kZeroOneAdam,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1,
                                .freeze_step = 4,
                                .refresh_doubling = 2,
                                .local_doubling = 3,
                                .local_most = 3};
const std::set<int> kRefreshes{1, 2, 3}, kApart{8, 11, 12, 14, 15};
constexpr int kSteps = 16;

double rate_of(int step) { return 0.03 / (1 + 0.1 * step); }

// Takes the message of one bit an element out of x.
Vector message_of(Vector& x) {
  double scale = 0;
  for (const double each : x) scale += std::fabs(each) / kWidth;
  Vector message;
  for (int k = 0; k < kWidth; ++k) {
    message[k] = x[k] < 0 ? -scale : scale;
    x[k] -= message[k];
  }
  return message;
}

// The algorithm on all replicas.
class Reference {
 public:
  explicit Reference(int replicas) : replicas_(replicas), w(replicas), m_(replicas), e_(replicas) {}

  void step(int update) {
    std::vector<Vector> gradients;  // of a replica's samples, divided by all
    for (int r = 0; r < replicas_; ++r) gradients.push_back(gradient(update - 1, r));
    size_ = rate_of(update - 1) / (1 - std::pow(kOptions.beta1, update));
    kept_ = 1 - rate_of(update - 1) * kOptions.weight_decay;
    if (kRefreshes.contains(update)) return refresh(gradients);
    move_apart(gradients);
    if (replicas_ == 1 || !kApart.contains(update))
      synchronise();  // one has no one to be apart from
  }

 private:
  Vector gradient(int step, int r) const {
    Vector sum{};
    for (int i = kSamples * r / replicas_; i < kSamples * (r + 1) / replicas_; ++i) {
      double error = -label_of(step, i);
      for (int k = 0; k < kWidth; ++k) error += input_of(step, i, k) * w[r][k];
      for (int k = 0; k < kWidth; ++k) sum[k] += error * input_of(step, i, k) / kSamples;
    }
    return sum;
  }

  double root(int k) const {
    return std::sqrt(v_[k] / (1 - std::pow(kOptions.beta2, refreshed_))) + kOptions.epsilon;
  }

  void refresh(const std::vector<Vector>& gradients) {
    ++refreshed_;
    for (int k = 0; k < kWidth; ++k) {
      double g = 0;
      for (const Vector& each : gradients) g += each[k];
      v_[k] = kOptions.beta2 * v_[k] + (1 - kOptions.beta2) * g * g;
      for (int r = 0; r < replicas_; ++r) {
        m_[r][k] = kOptions.beta1 * m_[r][k] + (1 - kOptions.beta1) * g;
        w[r][k] = kept_ * w[r][k] - size_ * m_[r][k] / root(k);
      }
    }
    shared_ = w[0];
  }

  void move_apart(const std::vector<Vector>& gradients) {
    const double most = (1 - kOptions.beta1) / std::sqrt(1 - kOptions.beta2);
    ++round_;
    sizes_ += size_;
    keeps_ *= kept_;
    for (int r = 0; r < replicas_; ++r)
      for (int k = 0; k < kWidth; ++k) {
        const double g = replicas_ * gradients[r][k];
        const double u = kOptions.beta1 * m_[r][k] / root(k) +
                         std::clamp((1 - kOptions.beta1) * g / root(k), -most, most);
        e_[r][k] += u;
        m_[r][k] = u * root(k);
        w[r][k] = kept_ * w[r][k] - size_ * u;
      }
  }

  void synchronise() {
    Vector direction = e_[0];
    if (replicas_ > 1) {
      for (Vector& each : e_) {
        const Vector message = message_of(each);
        for (int k = 0; k < kWidth; ++k) server_[k] += message[k] / replicas_;
      }
      direction = message_of(server_);
    } else {
      e_[0] = {};
    }
    for (int k = 0; k < kWidth; ++k) {
      shared_[k] = keeps_ * shared_[k] - sizes_ * direction[k] / round_;
      for (int r = 0; r < replicas_; ++r) {
        w[r][k] = shared_[k];
        m_[r][k] = direction[k] / round_ * root(k);
      }
    }
    round_ = 0;
    sizes_ = 0;
    keeps_ = 1;
  }

  int replicas_;

 public:
  std::vector<Vector> w;

 private:
  std::vector<Vector> m_, e_;
  Vector v_{}, server_{}, shared_{};
  double size_ = 0, kept_ = 1, sizes_ = 0, keeps_ = 1;
  int refreshed_ = 0, round_ = 0;
};

TEST(ZeroOneTraining, FollowsFormulas) {
  for (const int replicas : {1, 2, 3}) {
    Sequential model({"points", "labels"});
    model.add("products", std::make_shared<Products>(), {"points"});
    model.add("loss", std::make_shared<HalfSquaredError>(), {"x", "labels"}, {"loss"});
    const StepPlan plan = plan_steps(model, {.mesh = {{Axis::kData, replicas}}, .micro_batch = 2});
    std::vector<std::vector<Vector>> learned(kSteps, std::vector<Vector>(replicas));
    run_thread_ranks({.ranks = replicas}, [&](Group& group, MemoryAccount&) {
      Trainer trainer(model, plan, group, {.optimizer = kOptions});
      trainer.fill([](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
        for (const NamedState& weight : weights) weight.local.zero_();
      });
      for (int step = 0; step < kSteps; ++step) {
        trainer.step(batch_of(step), rate_of(step));
        const at::Tensor weight = trainer.weights().front().values();
        for (int k = 0; k < kWidth; ++k)
          learned[step][group.rank()][k] = weight.data_ptr<float>()[k];
      }
    });
    Reference reference(replicas);
    for (int step = 0; step < kSteps; ++step) {
      reference.step(step + 1);
      for (int r = 0; r < replicas; ++r)
        for (int k = 0; k < kWidth; ++k)
          EXPECT_NEAR(learned[step][r][k], reference.w[r][k], 2e-5)
              << replicas << " replicas, update " << step + 1 << ", replica " << r << ", " << k;
    }
  }
}

}  // namespace
}  // namespace strata
