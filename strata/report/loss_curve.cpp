// Gathers the loss of training and validation over steps, and the AUC of a recommender.
#include <algorithm>
#include <cmath>
#include <functional>

#include "strata/report/page.h"

namespace strata {
namespace {

constexpr std::size_t kMostPoints = 1500;  // more points than pixels only make the page larger

// Means of adjacent steps, if there are more points than pixels.
CurvePoints training(const std::vector<StepRecord>& records) {
  const std::size_t group = (records.size() + kMostPoints - 1) / kMostPoints;
  CurvePoints curve;
  for (std::size_t first = 0; first < records.size(); first += group) {
    const std::size_t end = std::min(first + group, records.size());
    double sum = 0;
    for (std::size_t i = first; i < end; ++i) sum += records[i].loss;
    const double loss = sum / static_cast<double>(end - first);
    if (std::isfinite(loss)) curve.emplace_back(records[end - 1].step, loss);
  }
  return curve;
}

// A centred mean, which does not lag, unlike a running mean.
CurvePoints smooth(const CurvePoints& curve) {
  std::vector<double> sums = {0};
  for (const auto& [step, value] : curve) sums.push_back(sums.back() + value);
  const std::size_t most = curve.size() / 60;
  CurvePoints smoothed;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const std::size_t reach = std::min({most, i, curve.size() - 1 - i});
    const double sum = sums[i + reach + 1] - sums[i - reach];
    smoothed.emplace_back(curve[i].first, sum / static_cast<double>(2 * reach + 1));
  }
  return smoothed;
}

// The validations during training, and the one at the end.
CurvePoints validation(const ReportInput& input,
                       const std::function<std::optional<double>(const StepRecord&)>& value_of) {
  CurvePoints curve;
  const auto add = [&](const StepRecord& record, std::int64_t step) {
    const std::optional<double> value = value_of(record);
    if (value && std::isfinite(*value)) curve.emplace_back(step, *value);
  };
  for (const StepRecord& record : input.records) add(record, record.step);
  const std::int64_t last = input.records.back().step;
  const bool known = !curve.empty() && curve.back().first == last;
  if (!known)
    add({.validation_loss = input.validation_loss, .validation_metrics = input.validation_metrics},
        last);
  return curve;
}

std::optional<double> auc_of(const StepRecord& record) {
  return metric_named(record.validation_metrics, "auc");
}

// Without curves that have no points. Five decimals are finer than a pixel.
std::vector<Curve> drawn(std::vector<Curve> curves) {
  std::erase_if(curves, [](const Curve& curve) { return curve.points.empty(); });
  for (Curve& curve : curves)
    for (auto& [step, value] : curve.points) value = rounded(value, 5);
  return curves;
}

}  // namespace

std::optional<Card> loss_curve_card(const ReportInput& input) {
  if (input.records.empty()) return {};
  const CurvePoints train = training(input.records);
  if (train.empty()) return {};
  Card card{.id = "loss",
            .title = "Loss",
            .caption =
                "Mean over the " + input.unit + "s of a step, in nats; the bold line is smoothed."};
  card.curves = drawn(
      {{.style = "raw", .name = "training", .points = train},
       {.style = "train", .points = smooth(train)},
       {.style = "validation",
        .name = "validation",
        .dots = true,
        .points = validation(input, [](const StepRecord& of) { return of.validation_loss; })}});
  return card;
}

std::optional<Card> auc_curve_card(const ReportInput& input) {
  if (input.records.empty()) return {};
  Card card{.id = "auc",
            .title = "AUC",
            .caption =
                "Of all pairs of a positive and a negative validation sample, the share that "
                "the model puts in the right order; 0.5 is chance."};
  card.curves = drawn({{.style = "validation",
                        .name = "validation",
                        .dots = true,
                        .points = validation(input, auc_of)}});
  if (card.curves.empty()) return {};
  if (card.curves[0].points.size() == 1)
    card.caption += " There was one validation; set train.validate_every for more.";
  return card;
}

}  // namespace strata
