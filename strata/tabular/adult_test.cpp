#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "strata/tabular/click_metrics.h"
#include "strata/tabular/loader.h"

namespace strata {
namespace {

const std::string kFolder = STRATA_SOURCE_DIR "/data/adult";

TabularOptions adult() {
  TabularOptions options{.train = kFolder + "/train.csv",
                         .validation = kFolder + "/test.csv",
                         .label = "income",
                         .positive = ">50K"};
  for (const char* name :
       {"age", "education_num", "capital_gain", "capital_loss", "hours_per_week"})
    options.numeric.push_back({.name = name});
  for (const char* name : {"workclass", "education", "marital_status", "occupation", "relationship",
                           "race", "sex", "native_country"})
    options.categorical.push_back({.name = name, .ids = IdSource::kVocabulary});
  return options;
}

/// Trains with Adagrad, one weight for each number and each id.
class LogisticRegression {
 public:
  LogisticRegression(std::size_t numbers, std::size_t features)
      : numbers_(numbers),
        weights_(1 + numbers + features * kIds),
        squares_(weights_.size(), 1e-8) {}

  void step(const SampleBatch& batch) {
    for (std::int64_t s = 0; s < batch.samples; ++s) {
      const double error = 1 / (1 + std::exp(-logit(batch, s))) - batch.labels[s];
      for_each(batch, s, [&](std::size_t i, double x) {
        const double gradient = error * x;
        squares_[i] += gradient * gradient;
        weights_[i] -= 0.05 * gradient / std::sqrt(squares_[i]);
      });
    }
  }
  double logit(const SampleBatch& batch, std::int64_t s) const {
    double sum = 0;
    for_each(batch, s, [&](std::size_t i, double x) { sum += weights_[i] * x; });
    return sum;
  }

 private:
  static constexpr std::size_t kIds = 64;

  template <typename Body>
  void for_each(const SampleBatch& batch, std::int64_t s, Body body) const {
    body(0, 1.0);
    for (std::size_t i = 0; i < numbers_; ++i)
      body(1 + i, batch.numeric[static_cast<std::size_t>(s) * numbers_ + i]);
    for (std::size_t f = 0; f < batch.categorical.size(); ++f)
      body(1 + numbers_ + f * kIds + batch.categorical[f].ids[static_cast<std::size_t>(s)], 1.0);
  }

  std::size_t numbers_;
  std::vector<double> weights_, squares_;
};

// A published result: logistic regression reaches a test AUC of 0.9055 on this data.
TEST(Adult, LogisticRegressionReachesPublishedAuc) {
  if (!std::filesystem::exists(kFolder + "/train.csv"))
    GTEST_SKIP() << "no data/adult; tools/fetch_adult.sh fetches it";
  const TabularData data = open_tabular(adult(), 1);
  ASSERT_EQ(data.train.samples(), 32561);
  ASSERT_EQ(data.validation.samples(), 16281);
  LogisticRegression model(5, 8);
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) model.step(data.train.at(epoch * 32561, 32561));
  const SampleBatch test = data.validation.at(0, 16281);
  double ones = 0;
  std::vector<float> logits;
  for (std::int64_t s = 0; s < test.samples; ++s) {
    ones += static_cast<double>(test.labels[s]);
    logits.push_back(static_cast<float>(model.logit(test, s)));
  }
  EXPECT_EQ(ones, 3846);
  ClickMetrics metrics;
  metrics.add(logits, test.labels, {});
  const ClickQuality quality = metrics.quality();
  RecordProperty("auc", std::to_string(quality.auc));
  EXPECT_NEAR(quality.auc, 0.9055, 0.003) << quality.auc;
  EXPECT_NEAR(quality.calibration, 1, 0.05) << quality.calibration;
}

}  // namespace
}  // namespace strata
