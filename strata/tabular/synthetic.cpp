#include "strata/tabular/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/base/units.h"

namespace strata {
namespace {

constexpr std::uint64_t kClicks = 0x636C69636B73;  // "clicks": keys of its own
constexpr std::int64_t kBiasSamples = 4096;
constexpr double kDriftShare = 0.01;           // of a feature's ids
constexpr std::size_t kFactors = 4;            // dimensions of a hidden vector
constexpr double kUnit = std::numbers::sqrt3;  // (-kUnit, kUnit) has variance 1

std::uint64_t low_half(std::uint64_t word) { return word & 0xFFFFFFFF; }

// The random numbers of one sample or one id, in sequence.
class Draws {
 public:
  Draws(std::uint64_t key, std::uint64_t number)
      : key_({static_cast<std::uint32_t>(low_half(key)), static_cast<std::uint32_t>(key >> 32)}),
        counter_({static_cast<std::uint32_t>(low_half(number)),
                  static_cast<std::uint32_t>(number >> 32), 0, 0}) {}

  double uniform() {  // in (0, 1)
    if (used_ == block_.size()) {
      block_ = philox(counter_, key_);
      ++counter_[2];
      used_ = 0;
    }
    return (block_[used_++] + 0.5) * 0x1p-32;
  }

  double normal() {  // Box and Muller
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::array<std::uint32_t, 2> key_;
  PhiloxBlock counter_;
  PhiloxBlock block_ = {};
  std::size_t used_ = 4;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double entropy(double p) {
  return p <= 0 || p >= 1 ? 0 : -p * std::log(p) - (1 - p) * std::log1p(-p);
}

// (exp(x) - 1) / x and log(1 + x) / x, also at 0.
double exp_ratio(double x) { return std::fabs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double log_ratio(double x) { return std::fabs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

}  // namespace

ZipfDistribution::ZipfDistribution(std::int64_t count, double exponent)
    : count_(count), exponent_(exponent) {
  first_ = integral(1.5) - 1;
  last_ = integral(static_cast<double>(count) + 0.5);
  sure_ = 2 - inverse(integral(2.5) - weight(2));
}

double ZipfDistribution::weight(double x) const { return std::exp(-exponent_ * std::log(x)); }

double ZipfDistribution::integral(double x) const {
  return std::log(x) * exp_ratio((1 - exponent_) * std::log(x));
}

double ZipfDistribution::inverse(double area) const {
  return std::exp(area * log_ratio(std::max(area * (1 - exponent_), -1.0)));
}

std::int64_t ZipfDistribution::nearest(double x) const {
  const double clamped = std::clamp(x + 0.5, 1.0, static_cast<double>(count_));
  return std::min(static_cast<std::int64_t>(clamped), count_) - 1;
}

bool ZipfDistribution::accepts(std::int64_t rank, double x, double area) const {
  const double k = static_cast<double>(rank) + 1;
  return k - x <= sure_ || area >= integral(k + 0.5) - weight(k);
}

SyntheticClicks::SyntheticClicks(const SyntheticOptions& options, const std::string& label)
    : options_(options),
      columns_({label}),
      key_(mix_key(static_cast<std::uint64_t>(options.seed), kClicks)) {
  Draws draws(key_, ~std::uint64_t{0});
  for (std::int64_t i = 1; i <= options.numeric; ++i) {
    columns_.push_back("n" + std::to_string(i));
    slopes_.push_back(draws.normal());
  }
  for (const SyntheticFeature& feature : options.features) {
    features_.push_back({feature, ZipfDistribution(feature.cardinality, feature.zipf),
                         Permutation(feature.cardinality), mix_key(key_, features_.size() + 1)});
    columns_.push_back(feature.name);
  }
  bias_ = bias_for(options.positive);
}

// Uses samples spread over all; the mean probability rises with the bias.
double SyntheticClicks::bias_for(double positive) const {
  std::vector<double> logits;
  const std::int64_t some = std::min(samples(), kBiasSamples);
  for (std::int64_t i = 0; i < some; ++i) logits.push_back(make(samples() / some * i).logit);
  double low = -1000, high = 1000;
  for (int halving = 0; halving < 60; ++halving) {
    const double bias = (low + high) / 2;
    double sum = 0;
    for (const double logit : logits) sum += sigmoid(logit + bias);
    (sum < positive * static_cast<double>(some) ? low : high) = bias;
  }
  return (low + high) / 2;
}

std::int64_t SyntheticClicks::samples() const {
  return options_.samples + options_.validation_samples;
}

std::string SyntheticClicks::place(std::int64_t sample) const {
  return path() + ": sample " + std::to_string(sample + 1);
}

// The square of the sum minus the sum of squares is twice the sum over pairs.
double SyntheticClicks::logit(const Sample& sample) const {
  const double terms = static_cast<double>(features_.size() + slopes_.size());
  const double pairs =
      static_cast<double>(features_.size() * (std::max<std::size_t>(features_.size(), 1) - 1)) / 2;
  double linear = 0, pairwise = 0;
  for (std::size_t i = 0; i < slopes_.size(); ++i)
    linear += slopes_[i] * static_cast<double>(sample.numbers[i]);
  std::array<double, kFactors> sum = {};
  for (std::size_t f = 0; f < features_.size(); ++f) {
    std::array<double, kFactors> factors = {};
    const double share = 1 / std::max(1.0, static_cast<double>(sample.ids[f].size()));
    for (const std::int64_t id : sample.ids[f]) {
      Draws hidden(features_[f].key, static_cast<std::uint64_t>(id));
      linear += share * hidden.normal();
      for (double& factor : factors) factor += share * (2 * hidden.uniform() - 1) * kUnit;
    }
    for (std::size_t k = 0; k < kFactors; ++k) {
      pairwise -= factors[k] * factors[k] / 2;
      sum[k] += factors[k];
    }
  }
  for (const double factor : sum) pairwise += factor * factor / 2;
  double total = bias_ + options_.linear * linear / std::sqrt(terms);
  if (pairs > 0)
    total += options_.pairwise * pairwise / std::sqrt(static_cast<double>(kFactors) * pairs);
  return total;
}

SyntheticClicks::Sample SyntheticClicks::make(std::int64_t number) const {
  STRATA_CHECK(number >= 0 && number < samples(), "tabular.synthetic");
  Draws draws(key_, static_cast<std::uint64_t>(number));
  Sample sample;
  for (std::size_t i = 0; i < slopes_.size(); ++i)
    sample.numbers.push_back(static_cast<float>(draws.normal()));
  const std::int64_t drifts = options_.drift_every > 0 ? number / options_.drift_every : 0;
  for (const Feature& feature : features_) {
    const SyntheticFeature& options = feature.options;
    const double choices = static_cast<double>(options.most_ids - options.least_ids + 1);
    const auto more = static_cast<std::int64_t>(draws.uniform() * choices);
    const std::int64_t step = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(kDriftShare * static_cast<double>(options.cardinality)));
    const auto shift =
        static_cast<std::int64_t>(static_cast<__int128>(drifts) * step % options.cardinality);
    std::vector<std::int64_t>& ids = sample.ids.emplace_back();
    for (std::int64_t k = 0; k < options.least_ids + more; ++k) {
      const std::int64_t rank = feature.ranks.draw([&] { return draws.uniform(); });
      ids.push_back(feature.ids.at((rank + shift) % options.cardinality, feature.key));
    }
  }
  sample.logit = logit(sample);
  sample.probability =
      (1 - options_.noise) * sigmoid(sample.logit) + options_.noise * options_.positive;
  sample.label = draws.uniform() < sample.probability;
  return sample;
}

double SyntheticClicks::probability(std::int64_t sample) const { return make(sample).probability; }

void SyntheticClicks::read(std::int64_t number, SampleText& text) const {
  const Sample sample = make(number);
  std::string all;
  std::vector<std::size_t> ends;
  const auto end_column = [&] { ends.push_back(all.size()); };
  all += sample.label ? '1' : '0';
  end_column();
  for (const float value : sample.numbers) {
    all += format_double_exactly(static_cast<double>(value));
    end_column();
  }
  for (const std::vector<std::int64_t>& ids : sample.ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) all += (i > 0 ? " " : "") + std::to_string(ids[i]);
    end_column();
  }
  text.bytes.assign(all.begin(), all.end());
  text.fields.clear();
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    text.fields.emplace_back(text.bytes.data() + begin, end - begin);
    begin = end;
  }
}

BayesQuality SyntheticClicks::bayes(std::int64_t first, std::int64_t count) const {
  std::vector<double> probabilities;
  double positive = 0;
  BayesQuality quality;
  for (std::int64_t i = first; i < first + count; ++i) {
    probabilities.push_back(probability(i));
    positive += probabilities.back();
    quality.log_loss += entropy(probabilities.back());
  }
  std::ranges::sort(probabilities);
  const double n = static_cast<double>(count);
  // Expected pairs of a 0 and a 1 with the 1 ranked higher, plus half of those with equal rank.
  double below = 0, ordered = 0;
  for (std::size_t begin = 0; begin < probabilities.size();) {
    std::size_t end = begin;
    double ones = 0, zeros = 0;
    for (; end < probabilities.size() && probabilities[end] == probabilities[begin]; ++end) {
      ones += probabilities[end];
      zeros += 1 - probabilities[end];
    }
    // A sample does not form a pair with itself.
    const double same = ones * zeros - static_cast<double>(end - begin) * probabilities[begin] *
                                           (1 - probabilities[begin]);
    ordered += ones * below + same / 2;
    below += zeros;
    begin = end;
  }
  double self = 0;
  for (const double p : probabilities) self += p * (1 - p);
  quality.auc = ordered / (positive * (n - positive) - self);
  quality.log_loss /= n;
  quality.normalized_entropy = quality.log_loss / entropy(positive / n);
  return quality;
}

}  // namespace strata
