// Compares 0/1 Adam with a regression whose refreshes, signs and rounds are written here again, in
// fp64 (Lu et al. 2022, algorithm 1, on momenta divided by the roots of their variances). The
// replicas of the algorithm may be groups of ranks that share shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "strata/comm/ranks.h"
#include "strata/train/regression_test.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

constexpr int kSamples = 13;
constexpr int kBlock = 1024;  // layers are cut in blocks of so many elements
using Vector = std::vector<double>;

// Wider inputs are smaller, so that predictions are not larger.
Regression regression_of(int width) {
  const auto input = [width](int step, int sample, int k) {
    return 16.0 / width * std::sin(1.3 * step + 2.9 * sample + 0.7 * k * (1 + k));
  };
  return {.width = width, .samples = kSamples, .input = input, .label = [=](int step, int sample) {
            double label = 0.3 * std::sin(5.1 * sample + step);
            for (int k = 0; k < width; ++k) label += input(step, sample, k) * std::cos(2.0 * k);
            return label;
          }};
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

// Takes the message of one bit an element out of x. Each part has a scale.
Vector message_of(Vector& x, int part) {
  Vector message(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += static_cast<std::size_t>(part)) {
    const std::size_t end = std::min(x.size(), begin + static_cast<std::size_t>(part));
    double scale = 0;
    for (std::size_t k = begin; k < end; ++k)
      scale += std::fabs(x[k]) / static_cast<double>(end - begin);
    for (std::size_t k = begin; k < end; ++k) {
      message[k] = x[k] < 0 ? -scale : scale;
      x[k] -= message[k];
    }
  }
  return message;
}

// The algorithm on all replicas.
class Reference {
 public:
  Reference(const Regression& regression, int replicas)
      : regression_(regression),
        replicas_(replicas),
        width_(static_cast<std::size_t>(regression.width)),
        w(static_cast<std::size_t>(replicas), Vector(width_)),
        m_(w),
        e_(w),
        v_(width_),
        server_(width_),
        shared_(width_) {}

  void step(int update) {
    std::vector<Vector> gradients;  // of a replica's samples, divided by all
    for (int i = 0; i < replicas_; ++i) gradients.push_back(gradient(update - 1, i));
    size_ = rate_of(update - 1) / (1 - std::pow(kOptions.beta1, update));
    kept_ = 1 - rate_of(update - 1) * kOptions.weight_decay;
    if (kRefreshes.contains(update)) return refresh(gradients);
    move_apart(gradients);
    if (replicas_ == 1 || !kApart.contains(update))
      synchronise();  // one has no one to be apart from
  }

 private:
  Vector gradient(int step, int r) const {
    Vector sum(width_);
    for (int i = kSamples * r / replicas_; i < kSamples * (r + 1) / replicas_; ++i) {
      Vector x(width_);
      double error = -regression_.label(step, i);
      for (std::size_t k = 0; k < width_; ++k) {
        x[k] = regression_.input(step, i, static_cast<int>(k));
        error += x[k] * w[static_cast<std::size_t>(r)][k];
      }
      for (std::size_t k = 0; k < width_; ++k) sum[k] += error * x[k] / kSamples;
    }
    return sum;
  }

  double root(std::size_t k) const {
    return std::sqrt(v_[k] / (1 - std::pow(kOptions.beta2, refreshed_))) + kOptions.epsilon;
  }

  void refresh(const std::vector<Vector>& gradients) {
    ++refreshed_;
    for (std::size_t k = 0; k < width_; ++k) {
      double g = 0;
      for (const Vector& each : gradients) g += each[k];
      v_[k] = kOptions.beta2 * v_[k] + (1 - kOptions.beta2) * g * g;
      for (std::size_t r = 0; r < w.size(); ++r) {
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
    for (std::size_t r = 0; r < w.size(); ++r)
      for (std::size_t k = 0; k < width_; ++k) {
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
        const Vector message = message_of(each, kBlock);
        for (std::size_t k = 0; k < width_; ++k) server_[k] += message[k] / replicas_;
      }
      direction = message_of(server_, kBlock);
    } else {
      e_[0] = Vector(width_);
    }
    for (std::size_t k = 0; k < width_; ++k) {
      shared_[k] = keeps_ * shared_[k] - sizes_ * direction[k] / round_;
      for (std::size_t r = 0; r < w.size(); ++r) {
        w[r][k] = shared_[k];
        m_[r][k] = direction[k] / round_ * root(k);
      }
    }
    round_ = 0;
    sizes_ = 0;
    keeps_ = 1;
  }

  const Regression& regression_;
  int replicas_;
  std::size_t width_;

 public:
  std::vector<Vector> w;

 private:
  std::vector<Vector> m_, e_;
  Vector v_, server_, shared_;
  double size_ = 0, kept_ = 1, sizes_ = 0, keeps_ = 1;
  int refreshed_ = 0, round_ = 0;
};

// The weights of each rank after each step; with ZeRO, those of its shard, and zeros.
using Learned = std::vector<std::vector<Vector>>;

Learned learn(const Regression& regression, int groups, int shards, int zero) {
  const Sequential model =
      regression_model({{.name = "weight", .shape = {1, regression.width}, .decay = true}});
  const int ranks = groups * shards;
  const StepPlan plan =
      plan_steps(model, {.mesh = {{Axis::kData, ranks}},
                         .zero = {.stage = zero, .shard_ranks = zero > 0 ? shards : 0},
                         .micro_batch = 2});
  Learned learned(kSteps, std::vector<Vector>(static_cast<std::size_t>(ranks),
                                              Vector(static_cast<std::size_t>(regression.width))));
  run_thread_ranks({.ranks = ranks}, [&](Group& group, MemoryAccount&) {
    Trainer trainer(model, plan, group, {.optimizer = kOptions});
    trainer.fill([](const std::vector<NamedState>& weights, const std::vector<NamedState>&) {
      for (const NamedState& weight : weights)
        if (weight.local.defined()) weight.local.zero_();
    });
    for (int step = 0; step < kSteps; ++step) {
      trainer.step(regression_batch(regression, step), rate_of(step));
      const NamedState weight = trainer.weights().front();
      for (const Run& run : weight.runs)
        for (std::int64_t k = 0; k < run.numel; ++k)
          learned[static_cast<std::size_t>(step)][static_cast<std::size_t>(group.rank())]
                 [static_cast<std::size_t>(run.global + k)] =
                     weight.local.data_ptr<float>()[run.local + k];
    }
  });
  return learned;
}

TEST(ZeroOneTraining, FollowsFormulas) {
  for (const int replicas : {1, 2, 3}) {
    const Regression regression = regression_of(16);
    const Learned learned = learn(regression, replicas, 1, 0);
    Reference reference(regression, replicas);
    for (int step = 0; step < kSteps; ++step) {
      reference.step(step + 1);
      for (std::size_t r = 0; r < reference.w.size(); ++r)
        for (std::size_t k = 0; k < reference.w[r].size(); ++k)
          EXPECT_NEAR(learned[static_cast<std::size_t>(step)][r][k], reference.w[r][k], 2e-5)
              << replicas << " replicas, update " << step + 1 << ", replica " << r << ", " << k;
    }
  }
}

// Each part is a block. In fp32 a few elements near zero have the other sign.
TEST(ZeroOneTraining, GroupsThatShareShardsFollowFormulas) {
  for (const auto& [groups, shards] : {std::pair(2, 2), {3, 2}, {2, 3}})
    for (const int zero : {1, 3}) {
      const Regression regression = regression_of(groups * shards * kBlock);
      const Learned learned = learn(regression, groups, shards, zero);
      Reference reference(regression, groups);
      for (int step = 0; step < kSteps; ++step) {
        reference.step(step + 1);
        int close = 0;
        for (int rank = 0; rank < groups * shards; ++rank)
          for (int k = 0; k < groups * kBlock; ++k) {
            const auto at = static_cast<std::size_t>(rank % shards * groups * kBlock + k);
            const Vector& of_rank =
                learned[static_cast<std::size_t>(step)][static_cast<std::size_t>(rank)];
            const Vector& expected = reference.w[static_cast<std::size_t>(rank / shards)];
            close += std::fabs(of_rank[at] - expected[at]) < 2e-5 ? 1 : 0;
          }
        const double all = groups * groups * shards * kBlock;
        EXPECT_GT(close / all, 0.998)
            << groups << " groups of " << shards << ", zero " << zero << ", update " << step + 1;
      }
    }
}

}  // namespace
}  // namespace strata
