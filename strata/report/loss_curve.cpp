// Draws the loss of training and validation over steps, and the AUC of a recommender.
#include <algorithm>
#include <cmath>
#include <functional>

#include "strata/report/curve_plot.h"
#include "strata/report/html.h"

namespace strata {
namespace {

constexpr std::size_t kMostPoints = 1500;  // more points than pixels only make the page larger

// Means of adjacent steps, if there are more points than pixels.
Curve training(const std::vector<StepRecord>& records) {
  const std::size_t group = (records.size() + kMostPoints - 1) / kMostPoints;
  Curve curve;
  for (std::size_t first = 0; first < records.size(); first += group) {
    const std::size_t end = std::min(first + group, records.size());
    double sum = 0;
    for (std::size_t i = first; i < end; ++i) sum += records[i].loss;
    const double loss = sum / static_cast<double>(end - first);
    if (std::isfinite(loss)) curve.push_back({static_cast<double>(records[end - 1].step), loss});
  }
  return curve;
}

// A centred mean, which does not lag, unlike a running mean.
Curve smooth(const Curve& curve) {
  std::vector<double> sums = {0};
  for (const CurvePoint& point : curve) sums.push_back(sums.back() + point.value);
  const std::size_t most = curve.size() / 60;
  Curve smoothed;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const std::size_t reach = std::min({most, i, curve.size() - 1 - i});
    const double sum = sums[i + reach + 1] - sums[i - reach];
    smoothed.push_back({curve[i].step, sum / static_cast<double>(2 * reach + 1)});
  }
  return smoothed;
}

// The validations during training, and the one at the end.
Curve validation(const ReportInput& input,
                 const std::function<std::optional<double>(const StepRecord&)>& value_of) {
  Curve curve;
  const auto add = [&](const StepRecord& record, std::int64_t step) {
    const std::optional<double> value = value_of(record);
    if (value && std::isfinite(*value)) curve.push_back({static_cast<double>(step), *value});
  };
  for (const StepRecord& record : input.records) add(record, record.step);
  const std::int64_t last = input.records.back().step;
  const bool known = !curve.empty() && curve.back().step == static_cast<double>(last);
  if (!known)
    add({.validation_loss = input.validation_loss, .validation_metrics = input.validation_metrics},
        last);
  return curve;
}

std::optional<double> auc_of(const StepRecord& record) {
  return metric_named(record.validation_metrics, "auc");
}

}  // namespace

std::string loss_curve_section(const ReportInput& input) {
  if (input.records.empty()) return "";
  const Curve train = training(input.records);
  if (train.empty()) return "";
  return curve_section(
      {.id = "loss",
       .title = "Loss",
       .caption =
           "Mean over the " + input.unit + "s of a step, in nats; the bold line is smoothed.",
       .label = "Loss against steps",
       .curves = {
           {.style = "raw", .curve = train, .name = "training"},
           {.style = "train", .curve = smooth(train)},
           {.style = "validation",
            .curve = validation(input, [](const StepRecord& of) { return of.validation_loss; }),
            .name = "validation",
            .dots = true}}});
}

std::string auc_curve_section(const ReportInput& input) {
  if (input.records.empty()) return "";
  const Curve auc = validation(input, auc_of);
  std::string caption =
      "Of all pairs of a positive and a negative validation sample, the share that the model puts "
      "in "
      "the right order; 0.5 is chance.";
  if (auc.size() == 1) caption += " There was one validation; set train.validate_every for more.";
  return curve_section(
      {.id = "auc",
       .title = "AUC",
       .caption = caption,
       .label = "AUC against steps",
       .curves = {{.style = "validation", .curve = auc, .name = "validation", .dots = true}}});
}

}  // namespace strata
