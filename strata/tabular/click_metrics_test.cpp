#include "strata/tabular/click_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace strata {
namespace {

struct Predictions {
  std::vector<float> logits, labels;
  std::vector<std::uint64_t> groups;
};

Predictions random_predictions(int count, int seed, double tie = 0.3) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Predictions all;
  for (int i = 0; i < count; ++i) {
    const bool label = random() % 4 == 0;
    double logit = normal(random) + (label ? 0.7 : 0) - 1;
    if (std::uniform_real_distribution<double>()(random) < tie) logit = std::round(2 * logit) / 2;
    all.logits.push_back(static_cast<float>(logit));
    all.labels.push_back(label ? 1 : 0);
    all.groups.push_back(random() % static_cast<unsigned>(count / 8 + 1));
  }
  return all;
}

ClickMetrics metrics_of(const Predictions& all, std::int64_t exact = 1 << 22, std::size_t first = 0,
                        std::size_t last = SIZE_MAX) {
  last = std::min(last, all.logits.size());
  ClickMetrics metrics(exact);
  metrics.add(std::span(all.logits).subspan(first, last - first),
              std::span(all.labels).subspan(first, last - first),
              std::span(all.groups).subspan(first, last - first));
  return metrics;
}

// Compares all pairs; -1 without pairs.
double brute_auc(const std::vector<float>& logits, const std::vector<float>& labels) {
  double ordered = 0, pairs = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    for (std::size_t j = 0; j < logits.size(); ++j) {
      if (labels[i] != 1 || labels[j] != 0) continue;
      ++pairs;
      ordered += logits[i] > logits[j] ? 1 : logits[i] < logits[j] ? 0 : 0.5;
    }
  }
  return pairs > 0 ? ordered / pairs : -1;
}

double brute_grouped(const Predictions& all) {
  std::map<std::uint64_t, Predictions> groups;
  for (std::size_t i = 0; i < all.logits.size(); ++i) {
    groups[all.groups[i]].logits.push_back(all.logits[i]);
    groups[all.groups[i]].labels.push_back(all.labels[i]);
  }
  double sum = 0, weight = 0;
  for (const auto& [id, group] : groups) {
    const double auc = brute_auc(group.logits, group.labels);
    if (auc < 0) continue;
    sum += auc * static_cast<double>(group.logits.size());
    weight += static_cast<double>(group.logits.size());
  }
  return sum / weight;
}

TEST(ClickMetrics, MatchAllPairs) {
  for (int seed = 0; seed < 5; ++seed) {
    const Predictions all = random_predictions(700, seed);
    const ClickQuality quality = metrics_of(all).quality();
    EXPECT_NEAR(quality.auc, brute_auc(all.logits, all.labels), 1e-12);
    EXPECT_EQ(quality.auc_error, 0);
    EXPECT_NEAR(quality.grouped_auc, brute_grouped(all), 1e-12);
    EXPECT_EQ(quality.samples, 700);
  }
}

TEST(ClickMetrics, MatchClosedFormsOfConstantAndPerfectModel) {
  Predictions all;
  for (int i = 0; i < 1000; ++i) {
    all.logits.push_back(std::log(0.2F / 0.8F));
    all.labels.push_back(i % 5 == 0 ? 1 : 0);
    all.groups.push_back(1);
  }
  const ClickQuality constant = metrics_of(all).quality();
  EXPECT_EQ(constant.auc, 0.5);
  EXPECT_EQ(constant.grouped_auc, 0.5);
  EXPECT_NEAR(constant.log_loss, -0.2 * std::log(0.2) - 0.8 * std::log(0.8), 1e-7);
  EXPECT_NEAR(constant.normalized_entropy, 1, 1e-7);
  EXPECT_NEAR(constant.calibration, 1, 1e-6);
  for (int i = 0; i < 1000; ++i) all.logits[i] = all.labels[i] == 1 ? 100.0F : -100.0F;
  const ClickQuality perfect = metrics_of(all).quality();
  EXPECT_EQ(perfect.auc, 1);
  EXPECT_NEAR(perfect.log_loss, 0, 1e-12);
  for (float& logit : all.logits) logit = -logit;
  const ClickQuality inverse = metrics_of(all).quality();
  EXPECT_EQ(inverse.auc, 0);
  EXPECT_NEAR(inverse.log_loss, 100, 1e-9) << "no overflow";
  EXPECT_NEAR(inverse.calibration, 4, 1e-9);
}

TEST(ClickMetrics, HistogramIsWithinErrorOfExactArea) {
  for (const double tie : {0.0, 1.0}) {
    const Predictions all = random_predictions(5000, 7, tie);
    const ClickQuality exact = metrics_of(all).quality();
    const ClickQuality streamed = metrics_of(all, 100).quality();
    EXPECT_GT(streamed.auc_error, 0);
    EXPECT_NEAR(streamed.auc, exact.auc, streamed.auc_error + 1e-12);
    EXPECT_NEAR(streamed.log_loss, exact.log_loss, 1e-12);
    if (tie == 0) EXPECT_LT(streamed.auc_error, 1e-3);
  }
  // All logits except two are in one bin: they cannot be ordered, and the error bound shows that.
  Predictions near;
  for (int i = 0; i < 200; ++i) {
    near.logits.push_back(1 + static_cast<float>(i) * 1e-7F);
    near.labels.push_back(i < 100 ? 0 : 1);
    near.groups.push_back(0);
  }
  const ClickQuality blurred = metrics_of(near, 10).quality();
  EXPECT_NEAR(metrics_of(near).quality().auc, blurred.auc, blurred.auc_error + 1e-12);
  EXPECT_GT(blurred.auc_error, 0.4);
}

TEST(ClickMetrics, PartsOfRanksAddUp) {
  const Predictions all = random_predictions(3000, 11);
  for (const std::int64_t exact : {10000, 2000, 700, 0}) {
    ClickMetrics merged = metrics_of(all, exact, 0, 500);
    const ClickMetrics second = metrics_of(all, exact, 500, 2500);
    merged.merge(ClickMetrics::decode(second.encode()));
    merged.merge(metrics_of(all, exact, 2500));
    const ClickQuality together = merged.quality(), whole = metrics_of(all, exact).quality();
    EXPECT_EQ(together.samples, whole.samples);
    EXPECT_EQ(together.auc, whole.auc) << exact;
    EXPECT_EQ(together.auc_error, whole.auc_error);
    EXPECT_EQ(together.log_loss, whole.log_loss);
    EXPECT_EQ(together.normalized_entropy, whole.normalized_entropy);
    EXPECT_EQ(together.calibration, whole.calibration);
    if (exact >= 700) EXPECT_EQ(together.grouped_auc, whole.grouped_auc) << exact;
  }
}

// Rank by rank and sample by sample in turn, as a mesh divides mini-batches.
TEST(ClickMetrics, AreEqualForAnyDivisionOfSamples) {
  const Predictions all = random_predictions(5000, 19);
  const ClickQuality whole = metrics_of(all).quality();
  for (const std::size_t ranks : {2, 3, 7}) {
    std::vector<ClickMetrics> parts(ranks);
    for (std::size_t i = 0; i < all.logits.size(); ++i)
      parts[i % ranks].add({&all.logits[i], 1}, {&all.labels[i], 1}, {&all.groups[i], 1});
    ClickMetrics merged = parts.back();
    for (std::size_t rank = 0; rank + 1 < ranks; ++rank)
      merged.merge(ClickMetrics::decode(parts[rank].encode()));
    const ClickQuality together = merged.quality();
    EXPECT_EQ(together.auc, whole.auc) << ranks;
    EXPECT_EQ(together.grouped_auc, whole.grouped_auc) << ranks;
    EXPECT_EQ(together.log_loss, whole.log_loss) << ranks;
    EXPECT_EQ(together.normalized_entropy, whole.normalized_entropy) << ranks;
    EXPECT_EQ(together.calibration, whole.calibration) << ranks;
  }
}

TEST(ClickMetrics, InfiniteLogitHasLargeFiniteLoss) {
  const std::vector<float> logits = {INFINITY, -INFINITY, -INFINITY};
  const std::vector<float> labels = {1, 0, 1};
  ClickMetrics metrics;
  metrics.add(logits, labels, {});
  EXPECT_EQ(metrics.quality().log_loss, 0x1p30 / 3);
}

// The logits of a net whose last update made its weights too large.
TEST(ClickMetrics, AreUndefinedWithNanLogit) {
  const Predictions good{.logits = {1, -2, 3}, .labels = {1, 0, 0}, .groups = {1, 1, 1}};
  const Predictions bad{.logits = {1, NAN}, .labels = {0, 1}, .groups = {1, 2}};
  const auto expect_undefined = [](const ClickQuality& quality, std::int64_t samples) {
    EXPECT_EQ(quality.samples, samples);
    for (const double value : {quality.auc, quality.auc_error, quality.grouped_auc,
                               quality.log_loss, quality.normalized_entropy, quality.calibration})
      EXPECT_TRUE(std::isnan(value));
  };
  ClickMetrics metrics = metrics_of(good);
  EXPECT_FALSE(std::isnan(metrics.quality().log_loss));
  expect_undefined(metrics_of(bad).quality(), 2);
  metrics.merge(ClickMetrics::decode(metrics_of(bad).encode()));
  expect_undefined(metrics.quality(), 5);
}

TEST(ClickMetrics, KeepWholeGroupsBeyondLimit) {
  const Predictions all = random_predictions(40000, 13);
  const ClickQuality exact = metrics_of(all).quality();
  const ClickQuality some = metrics_of(all, 10000).quality();
  EXPECT_NE(some.grouped_auc, exact.grouped_auc);
  EXPECT_NEAR(some.grouped_auc, exact.grouped_auc, 0.03);
  EXPECT_NEAR(some.grouped_auc, brute_grouped(all), 0.03);
}

// One rank had to drop groups and the other did not: both orders drop the same.
TEST(ClickMetrics, MergePartsThatDroppedDifferentGroups) {
  const Predictions all = random_predictions(40000, 17);
  const ClickMetrics few = metrics_of(all, 12000, 0, 1000), many = metrics_of(all, 12000, 1000);
  ClickMetrics one = few, other = many;
  one.merge(many);
  other.merge(few);
  EXPECT_EQ(one.quality().grouped_auc, other.quality().grouped_auc);
  EXPECT_EQ(one.quality().grouped_auc, metrics_of(all, 12000).quality().grouped_auc);
}

TEST(ClickMetrics, AreNanIfUndefined) {
  EXPECT_TRUE(std::isnan(ClickMetrics().quality().auc));
  EXPECT_TRUE(std::isnan(ClickMetrics().quality().log_loss));
  const Predictions zeros{.logits = {1, 2}, .labels = {0, 0}, .groups = {1, 1}};
  const ClickQuality quality = metrics_of(zeros).quality();
  EXPECT_TRUE(std::isnan(quality.auc));
  EXPECT_TRUE(std::isnan(quality.grouped_auc));
  EXPECT_TRUE(std::isnan(quality.normalized_entropy));
  EXPECT_TRUE(std::isnan(quality.calibration));
  EXPECT_FALSE(std::isnan(quality.log_loss));
}

}  // namespace
}  // namespace strata
