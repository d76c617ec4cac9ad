/// Measures how well logits predict clicks, for samples in parts and from several ranks.
///
/// AUC      the probability that a 1 has a higher logit than a 0; ties count half. Exact by sorting
///          up to `exact_samples`; beyond, from a histogram of 2^20 bins for logits from -32 to 32.
///          Then `auc_error` bounds the distance from the exact value: half the share of pairs
///          within one bin.
/// Grouped  the mean of the groups' AUCs, weighted by their samples, over groups with both labels.
///          Beyond `exact_samples` it covers a share of the groups, chosen by a hash that is the
///          same on every rank.
/// Normalised entropy  log loss over the entropy of the mean label; a constant reaches 1.
/// Calibration  mean predicted probability over mean label.
///
/// Sums are whole multiples of 2^-50, so the results do not depend on the order of samples and
/// ranks. A sample's log loss above 2^30 counts as 2^30.
///
/// Source   normalised entropy: He et al., "Practical lessons from predicting clicks on ads"
///          (2014).
/// Threads  one thread.
/// Cost     5 bytes per sample up to exact_samples, then 16 MiB; 13 bytes per sample with a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace strata {

/// NaN if undefined: no samples, labels of one kind only, or a logit that is NaN.
struct ClickQuality {
  std::int64_t samples = 0;
  double auc = 0;
  double auc_error = 0;  ///< 0: exact
  double grouped_auc = 0;
  double log_loss = 0;
  double normalized_entropy = 0;
  double calibration = 0;
};

/// Computes the area under the ROC curve.
class AreaUnderCurve {
 public:
  explicit AreaUnderCurve(std::int64_t exact_samples) : exact_samples_(exact_samples) {}

  void add(float logit, bool label);
  void merge(const AreaUnderCurve& other);
  double value() const;
  double error() const;  ///< upper bound; 0: exact

  std::vector<std::byte> encode() const;
  /// removes the read bytes from the front
  static AreaUnderCurve decode(std::span<const std::byte>& bytes);

 private:
  void to_histogram();
  void count(float logit, bool label);

  std::int64_t exact_samples_;
  std::vector<float> logits_;
  std::vector<std::uint8_t> labels_;
  std::vector<std::int64_t> bins_;  // zeros and ones per bin; empty while exact
};

class ClickMetrics {
 public:
  explicit ClickMetrics(std::int64_t exact_samples = std::int64_t{1} << 22);

  /// One logit and label per sample; `groups` of the same length, or empty.
  void add(std::span<const float> logits, std::span<const float> labels,
           std::span<const std::uint64_t> groups);

  /// Equivalent to adding its samples here.
  void merge(const ClickMetrics& other);

  ClickQuality quality() const;

  /// Serializes for another rank.
  std::vector<std::byte> encode() const;
  static ClickMetrics decode(std::span<const std::byte> bytes);

 private:
  struct Grouped {
    std::uint64_t group = 0;
    float logit = 0;
    std::uint32_t label = 0;
  };
  struct Sums {
    std::int64_t samples = 0, labels = 0;
    __int128 probabilities = 0, losses = 0;  // in kUnits
  };
  bool is_kept(std::uint64_t group) const;
  void thin();
  double grouped_auc() const;

  std::int64_t exact_samples_;
  Sums sums_;
  std::int64_t undefined_ = 0;  // samples with a logit of NaN
  AreaUnderCurve curve_;
  std::vector<Grouped> grouped_;
  std::uint32_t halvings_ = 0;  // a group is kept if this many bits of its hash are zero
};

}  // namespace strata
