#include "strata/tabular/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "strata/tabular/click_metrics.h"
#include "strata/tabular/loader.h"
#include "strata/tabular/log_test.h"

namespace strata {
namespace {

SyntheticOptions small() {
  return {
      .samples = 20000,
      .validation_samples = 20000,
      .features = {{.name = "user", .cardinality = 1000, .zipf = 1.05},
                   {.name = "item", .cardinality = 50, .zipf = 0.8},
                   {.name = "words", .cardinality = 300, .zipf = 0, .least_ids = 0, .most_ids = 4}},
      .numeric = 2,
      .positive = 0.25,
      .linear = 2,
      .pairwise = 1};
}

TEST(ZipfDistribution, HasFrequenciesOfItsExponent) {
  for (const double exponent : {0.0, 0.8, 1.0, 1.05, 2.5}) {
    constexpr int kRanks = 20, kDraws = 200000;
    const ZipfDistribution zipf(kRanks, exponent);
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> uniform(1e-12, 1);
    std::vector<int> counts(kRanks);
    for (int i = 0; i < kDraws; ++i) {
      const std::int64_t rank = zipf.draw([&] { return uniform(random); });
      ASSERT_TRUE(rank >= 0 && rank < kRanks);
      ++counts[static_cast<std::size_t>(rank)];
    }
    double total = 0;
    for (int r = 0; r < kRanks; ++r) total += std::pow(r + 1, -exponent);
    for (int r = 0; r < kRanks; ++r) {
      const double p = std::pow(r + 1, -exponent) / total;
      EXPECT_NEAR(counts[r], kDraws * p, 5 * std::sqrt(kDraws * p) + 1) << exponent << " " << r;
    }
  }
}

TEST(ZipfDistribution, StaysInRangeForAnySize) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(1e-12, 1);
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, std::int64_t{1} << 50}) {
    const ZipfDistribution zipf(count, 0.8);
    for (int i = 0; i < 10000; ++i) {
      const std::int64_t rank = zipf.draw([&] { return uniform(random); });
      ASSERT_TRUE(rank >= 0 && rank < count) << rank;
    }
  }
}

TEST(SyntheticClicks, AreFunctionOfSeedAndNumber) {
  const SyntheticClicks clicks(small()), again(small());
  SyntheticOptions other = small();
  other.seed = 2;
  const SyntheticClicks different(other);
  SampleText a, b, c;
  int equal = 0;
  for (const std::int64_t k : {39999, 0, 17, 20000, 17}) {
    clicks.read(k, a);
    again.read(k, b);
    different.read(k, c);
    EXPECT_EQ(a.bytes, b.bytes);
    equal += a.bytes == c.bytes;
  }
  EXPECT_EQ(equal, 0);
}

TEST(SyntheticClicks, HaveConfiguredColumns) {
  TabularOptions options{.format = SampleFormat::kSynthetic, .synthetic = small()};
  const TabularData data = open_tabular(options, 1);
  EXPECT_EQ(data.train.samples(), 20000);
  EXPECT_EQ(data.validation.samples(), 20000);
  const SampleBatch batch = data.validation.at(0, 20000);
  EXPECT_EQ(batch.numeric.size(), 40000u);
  ASSERT_EQ(batch.categorical.size(), 3u);
  EXPECT_EQ(batch.categorical[0].ids.size(), 20000u);
  double ids = static_cast<double>(batch.categorical[2].ids.size()) / 20000;
  EXPECT_NEAR(ids, 2, 0.05) << "0 to 4, all as likely";
  double squares = 0, ones = 0;
  for (const float n : batch.numeric) squares += static_cast<double>(n) * static_cast<double>(n);
  EXPECT_NEAR(squares / 40000, 1, 0.03);
  for (const float label : batch.labels) ones += static_cast<double>(label);
  EXPECT_NEAR(ones / 20000, 0.25, 0.04);
  std::map<std::uint64_t, int> users;
  for (const std::uint64_t id : batch.categorical[0].ids) {
    ASSERT_LT(id, 1000u);
    ++users[id];
  }
  std::vector<std::pair<int, std::uint64_t>> hot;
  for (const auto& [id, count] : users) hot.emplace_back(-count, id);
  std::ranges::sort(hot);
  EXPECT_GT(-hot[0].first, 1.8 * -hot[1].first) << "the first is twice as frequent as the second";
  EXPECT_GT(std::max({hot[0].second, hot[1].second, hot[2].second}), 10u) << "spread out";
}

TEST(SyntheticClicks, KnowTheirBestAuc) {
  const SyntheticClicks clicks(small());
  constexpr int kFirst = 20000, kCount = 20000;
  ClickMetrics metrics;
  SampleText text;
  std::vector<double> probabilities;
  for (int k = kFirst; k < kFirst + kCount; ++k) {
    clicks.read(k, text);
    const double p = clicks.probability(k);
    probabilities.push_back(p);
    const auto logit = static_cast<float>(std::log(p / (1 - p)));
    const float label = text.fields[0] == "1" ? 1.0F : 0.0F;
    metrics.add(std::span(&logit, 1), std::span(&label, 1), {});
  }
  const BayesQuality best = clicks.bayes(kFirst, kCount);
  const ClickQuality drawn = metrics.quality();
  EXPECT_GT(best.auc, 0.75);
  EXPECT_LT(best.auc, 0.99);
  EXPECT_NEAR(drawn.auc, best.auc, 0.012);
  EXPECT_NEAR(drawn.log_loss, best.log_loss, 0.01);
  EXPECT_NEAR(drawn.normalized_entropy, best.normalized_entropy, 0.02);
  EXPECT_NEAR(drawn.calibration, 1, 0.03);
  // The definition, over all pairs of some samples.
  double ordered = 0, pairs = 0;
  for (int i = 0; i < 500; ++i) {
    for (int j = 0; j < 500; ++j) {
      if (i == j) continue;
      const double weight = probabilities[i] * (1 - probabilities[j]);
      pairs += weight;
      ordered += weight * (probabilities[i] > probabilities[j]   ? 1
                           : probabilities[i] < probabilities[j] ? 0
                                                                 : 0.5);
    }
  }
  EXPECT_NEAR(clicks.bayes(kFirst, 500).auc, ordered / pairs, 1e-12);
}

TEST(SyntheticClicks, CannotBePredictedIfLabelsAreNoise) {
  SyntheticOptions options = small();
  options.noise = 1;
  EXPECT_NEAR(SyntheticClicks(options).bayes(0, 2000).auc, 0.5, 1e-9);
  options.noise = 0.5;
  const double half = SyntheticClicks(options).bayes(0, 2000).auc;
  options.noise = 0;
  const double none = SyntheticClicks(options).bayes(0, 2000).auc;
  EXPECT_GT(half, 0.6);
  EXPECT_GT(none, half + 0.05);
}

TEST(SyntheticClicks, DriftToDifferentIds) {
  SyntheticOptions options = small();
  options.features = {{.name = "user", .cardinality = 1000, .zipf = 1.5}};
  options.numeric = 0;
  options.drift_every = 5000;
  const SyntheticClicks clicks(options);
  const auto hottest = [&](int first) {
    std::map<std::string, int> counts;
    SampleText text;
    for (int k = first; k < first + 5000; ++k) {
      clicks.read(k, text);
      ++counts[std::string(text.fields[1])];
    }
    return std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })
        ->first;
  };
  const std::set<std::string> ids = {hottest(0), hottest(5000), hottest(10000), hottest(15000)};
  EXPECT_EQ(ids.size(), 4u);
}

}  // namespace
}  // namespace strata
