/// Generates clicks from a teacher with known probabilities, so that the best possible AUC is
/// known.
///
/// Sample k is a function of the seed and k: nothing is stored, and any rank can generate any
/// sample. A feature's ids are Zipf-distributed ranks, permuted so that frequent ids are spread
/// over the table. The teacher has a hidden number and a hidden vector for every id. The logit of a
/// click is the sum of the numbers, plus the inner products of the vectors for all pairs of
/// features, plus a linear function of the numeric columns. Features with several ids contribute
/// their mean. A constant adjusts the fraction of 1s to the requested one.
///
/// Source   Zipf: Hörmann & Derflinger, "Rejection-inversion to generate variates from monotone
///          discrete distributions" (1996).
/// Threads  const, any thread.
/// Cost     per sample: about 0.1 us per id, and 4 multiplications per feature for the pairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/base/sampler.h"
#include "strata/tabular/sample_file.h"
#include "strata/tabular/synthetic_options.h"

namespace strata {

/// Draws ranks from 0; rank r has the weight (r + 1)^-exponent.
class ZipfDistribution {
 public:
  ZipfDistribution(std::int64_t count, double exponent);

  /// `uniform()` returns numbers in (0, 1); it is called about 1.1 times.
  template <typename Uniform>
  std::int64_t draw(Uniform uniform) const {
    for (;;) {
      const double area = last_ + uniform() * (first_ - last_);
      const double x = inverse(area);
      const std::int64_t rank = nearest(x);
      if (accepts(rank, x, area)) return rank;
    }
  }

 private:
  double weight(double x) const;
  double integral(double x) const;
  double inverse(double area) const;
  std::int64_t nearest(double x) const;
  bool accepts(std::int64_t rank, double x, double area) const;

  std::int64_t count_;
  double exponent_, first_, last_, sure_;
};

/// The best possible expected quality of any model.
struct BayesQuality {
  double auc = 0;
  double log_loss = 0;
  double normalized_entropy = 0;
};

class SyntheticClicks final : public SampleFile {
 public:
  explicit SyntheticClicks(const SyntheticOptions& options, const std::string& label = "label");

  /// Those of an epoch, followed by those for validation.
  std::int64_t samples() const override;
  const std::vector<std::string>& columns() const override { return columns_; }
  void read(std::int64_t sample, SampleText& text) const override;
  std::string place(std::int64_t sample) const override;

  /// probability of a 1, given the columns
  double probability(std::int64_t sample) const;

  /// of samples [first, first + count), expected over their labels
  BayesQuality bayes(std::int64_t first, std::int64_t count) const;

 private:
  struct Feature {
    SyntheticFeature options;
    ZipfDistribution ranks;
    Permutation ids;
    std::uint64_t key;
  };
  struct Sample {
    std::vector<float> numbers;
    std::vector<std::vector<std::int64_t>> ids;
    double logit = 0;
    double probability = 0;
    bool label = false;
  };
  std::string path() const override { return "synthetic clicks"; }
  Sample make(std::int64_t sample) const;
  double bias_for(double positive) const;
  double logit(const Sample& sample) const;

  SyntheticOptions options_;
  std::vector<Feature> features_;
  std::vector<double> slopes_;  // of the numeric columns
  std::vector<std::string> columns_;
  std::uint64_t key_;
  double bias_ = 0;
};

}  // namespace strata
