#include "strata/tabular/click_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "strata/base/errors.h"
#include "strata/base/philox.h"

namespace strata {
namespace {

constexpr std::size_t kBins = std::size_t{1} << 20;
constexpr double kLargestLogit = 32;
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kGroups = 0x67726F757073;  // "groups"

// Pairs of a 0 and a 1, and how many of them are in order; a tie counts as half.
struct Pairs {
  double zeros = 0, ones = 0, ordered = 0, tied = 0;

  void add_tie(double more_zeros, double more_ones) {
    ordered += more_ones * (zeros + more_zeros / 2);
    tied += more_ones * more_zeros;
    zeros += more_zeros;
    ones += more_ones;
  }
  double auc() const { return zeros > 0 && ones > 0 ? ordered / (zeros * ones) : kUndefined; }
};

// Sorts by ascending logit, which `logit(i)` returns.
template <typename Logit, typename Label>
Pairs pairs_of(std::vector<std::uint32_t> order, Logit logit, Label label) {
  std::ranges::sort(order, {}, logit);
  Pairs pairs;
  for (std::size_t begin = 0; begin < order.size();) {
    double zeros = 0, ones = 0;
    std::size_t end = begin;
    for (; end < order.size() && logit(order[end]) == logit(order[begin]); ++end)
      ++(label(order[end]) ? ones : zeros);
    pairs.add_tie(zeros, ones);
    begin = end;
  }
  return pairs;
}

std::vector<std::uint32_t> all_below(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

template <typename T>
void put(std::vector<std::byte>& out, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename T>
void take(std::span<const std::byte>& from, std::span<T> values) {
  STRATA_CHECK(from.size() >= values.size_bytes(), "tabular.metrics");
  if (!values.empty()) std::memcpy(values.data(), from.data(), values.size_bytes());
  from = from.subspan(values.size_bytes());
}

template <typename T>
void put_list(std::vector<std::byte>& out, const std::vector<T>& values) {
  const std::uint64_t count = values.size();
  put(out, std::span(&count, 1));
  put(out, std::span<const T>(values));
}

template <typename T>
std::vector<T> take_list(std::span<const std::byte>& from) {
  std::uint64_t count = 0;
  take(from, std::span(&count, 1));
  STRATA_CHECK(count <= from.size() / sizeof(T), "tabular.metrics");
  std::vector<T> values(count);
  take(from, std::span(values));
  return values;
}

double label_entropy(double p) { return -p * std::log(p) - (1 - p) * std::log1p(-p); }

// Gives the same sum in any order: 2^47 samples of the largest value fit into 127 bits.
constexpr double kUnits = 0x1p50;
constexpr double kLargestLoss = 0x1p30;
__int128 in_units(double value) { return static_cast<__int128>(std::nearbyint(value * kUnits)); }
double from_units(__int128 sum) { return static_cast<double>(sum) / kUnits; }

// log(1 + exp(x)) without overflow.
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

}  // namespace

void AreaUnderCurve::add(float logit, bool label) {
  if (bins_.empty() && static_cast<std::int64_t>(logits_.size()) < exact_samples_) {
    logits_.push_back(logit);
    labels_.push_back(label ? 1 : 0);
    return;
  }
  if (bins_.empty()) to_histogram();
  count(logit, label);
}

void AreaUnderCurve::to_histogram() {
  bins_.assign(2 * kBins, 0);
  for (std::size_t i = 0; i < logits_.size(); ++i) count(logits_[i], labels_[i] != 0);
  logits_ = {};
  labels_ = {};
}

void AreaUnderCurve::count(float logit, bool label) {
  const double place = (static_cast<double>(logit) / kLargestLogit + 1) / 2 * kBins;
  const auto bin = static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(kBins - 1)));
  ++bins_[2 * bin + (label ? 1 : 0)];
}

void AreaUnderCurve::merge(const AreaUnderCurve& other) {
  const std::size_t together = logits_.size() + other.logits_.size();
  const bool exact =
      bins_.empty() && other.bins_.empty() && static_cast<std::int64_t>(together) <= exact_samples_;
  if (!exact && bins_.empty()) to_histogram();
  for (std::size_t i = 0; i < other.logits_.size(); ++i) {
    const bool label = other.labels_[i] != 0;
    exact ? add(other.logits_[i], label) : count(other.logits_[i], label);
  }
  for (std::size_t i = 0; i < other.bins_.size(); ++i) bins_[i] += other.bins_[i];
}

namespace {

Pairs histogram_pairs(const std::vector<std::int64_t>& bins) {
  Pairs pairs;
  for (std::size_t i = 0; i < bins.size(); i += 2)
    pairs.add_tie(static_cast<double>(bins[i]), static_cast<double>(bins[i + 1]));
  return pairs;
}

}  // namespace

double AreaUnderCurve::value() const {
  if (!bins_.empty()) return histogram_pairs(bins_).auc();
  return pairs_of(
             all_below(logits_.size()), [&](std::uint32_t i) { return logits_[i]; },
             [&](std::uint32_t i) { return labels_[i] != 0; })
      .auc();
}

double AreaUnderCurve::error() const {
  if (bins_.empty()) return 0;
  const Pairs pairs = histogram_pairs(bins_);
  return pairs.tied / (2 * pairs.zeros * pairs.ones);
}

std::vector<std::byte> AreaUnderCurve::encode() const {
  std::vector<std::byte> bytes;
  put(bytes, std::span(&exact_samples_, 1));
  put_list(bytes, logits_);
  put_list(bytes, labels_);
  put_list(bytes, bins_);
  return bytes;
}

AreaUnderCurve AreaUnderCurve::decode(std::span<const std::byte>& bytes) {
  AreaUnderCurve curve(0);
  take(bytes, std::span(&curve.exact_samples_, 1));
  curve.logits_ = take_list<float>(bytes);
  curve.labels_ = take_list<std::uint8_t>(bytes);
  curve.bins_ = take_list<std::int64_t>(bytes);
  STRATA_CHECK(curve.labels_.size() == curve.logits_.size() &&
                   (curve.bins_.empty() || curve.bins_.size() == 2 * kBins),
               "tabular.metrics");
  return curve;
}

ClickMetrics::ClickMetrics(std::int64_t exact_samples)
    : exact_samples_(exact_samples), curve_(exact_samples) {
  STRATA_CHECK(exact_samples >= 0 && exact_samples <= INT32_MAX, "tabular.metrics");
}

bool ClickMetrics::is_kept(std::uint64_t group) const {
  return halvings_ == 0 || mix_key(kGroups, group) >> (64 - halvings_) == 0;
}

// Halves the number of groups until the samples are within the limit; a single group may exceed it.
void ClickMetrics::thin() {
  while (static_cast<std::int64_t>(grouped_.size()) > exact_samples_ && halvings_ < 63) {
    ++halvings_;
    std::erase_if(grouped_, [&](const Grouped& sample) { return !is_kept(sample.group); });
  }
}

void ClickMetrics::add(std::span<const float> logits, std::span<const float> labels,
                       std::span<const std::uint64_t> groups) {
  STRATA_CHECK(logits.size() == labels.size() && (groups.empty() || groups.size() == labels.size()),
               "tabular.metrics");
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double logit = static_cast<double>(logits[i]);
    const bool label = labels[i] > 0.5F;
    ++sums_.samples;
    if (std::isnan(logit)) {
      ++undefined_;
      continue;
    }
    sums_.labels += label ? 1 : 0;
    sums_.probabilities += in_units(1 / (1 + std::exp(-logit)));
    sums_.losses += in_units(std::min(softplus(label ? -logit : logit), kLargestLoss));
    curve_.add(logits[i], label);
    if (groups.empty() || !is_kept(groups[i])) continue;
    grouped_.push_back({groups[i], logits[i], label ? 1U : 0U});
  }
  thin();
}

void ClickMetrics::merge(const ClickMetrics& other) {
  sums_.samples += other.sums_.samples;
  sums_.labels += other.sums_.labels;
  sums_.probabilities += other.sums_.probabilities;
  sums_.losses += other.sums_.losses;
  undefined_ += other.undefined_;
  curve_.merge(other.curve_);
  grouped_.insert(grouped_.end(), other.grouped_.begin(), other.grouped_.end());
  halvings_ = std::max(halvings_, other.halvings_);
  std::erase_if(grouped_, [&](const Grouped& sample) { return !is_kept(sample.group); });
  thin();
}

double ClickMetrics::grouped_auc() const {
  std::vector<std::uint32_t> order = all_below(grouped_.size());
  std::ranges::sort(order, {}, [&](std::uint32_t i) { return grouped_[i].group; });
  double sum = 0, weight = 0;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && grouped_[order[end]].group == grouped_[order[begin]].group) ++end;
    const double auc =
        pairs_of(
            std::vector<std::uint32_t>(order.begin() + static_cast<std::ptrdiff_t>(begin),
                                       order.begin() + static_cast<std::ptrdiff_t>(end)),
            [&](std::uint32_t i) { return grouped_[i].logit; },
            [&](std::uint32_t i) { return grouped_[i].label != 0; })
            .auc();
    if (!std::isnan(auc)) {
      const auto samples = static_cast<double>(end - begin);
      sum += auc * samples;
      weight += samples;
    }
    begin = end;
  }
  return weight > 0 ? sum / weight : kUndefined;
}

ClickQuality ClickMetrics::quality() const {
  if (undefined_ > 0)
    return {.samples = sums_.samples,
            .auc = kUndefined,
            .auc_error = kUndefined,
            .grouped_auc = kUndefined,
            .log_loss = kUndefined,
            .normalized_entropy = kUndefined,
            .calibration = kUndefined};
  const auto samples = static_cast<double>(sums_.samples);
  const auto labels = static_cast<double>(sums_.labels);
  const double rate = labels / samples;  // NaN without samples
  const bool both = sums_.labels > 0 && sums_.labels < sums_.samples;
  const double loss = from_units(sums_.losses) / samples;
  return {.samples = sums_.samples,
          .auc = curve_.value(),
          .auc_error = both ? curve_.error() : kUndefined,
          .grouped_auc = grouped_auc(),
          .log_loss = loss,
          .normalized_entropy = both ? loss / label_entropy(rate) : kUndefined,
          .calibration = sums_.labels > 0 ? from_units(sums_.probabilities) / labels : kUndefined};
}

std::vector<std::byte> ClickMetrics::encode() const {
  std::vector<std::byte> bytes;
  put(bytes, std::span(&exact_samples_, 1));
  put(bytes, std::span(&sums_, 1));
  put(bytes, std::span(&undefined_, 1));
  put(bytes, std::span(&halvings_, 1));
  put_list(bytes, grouped_);
  const std::vector<std::byte> curve = curve_.encode();
  bytes.insert(bytes.end(), curve.begin(), curve.end());
  return bytes;
}

ClickMetrics ClickMetrics::decode(std::span<const std::byte> bytes) {
  ClickMetrics metrics(0);
  take(bytes, std::span(&metrics.exact_samples_, 1));
  take(bytes, std::span(&metrics.sums_, 1));
  take(bytes, std::span(&metrics.undefined_, 1));
  take(bytes, std::span(&metrics.halvings_, 1));
  metrics.grouped_ = take_list<Grouped>(bytes);
  metrics.curve_ = AreaUnderCurve::decode(bytes);
  STRATA_CHECK(bytes.empty(), "tabular.metrics");
  return metrics;
}

}  // namespace strata
