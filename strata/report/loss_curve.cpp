// The curve is drawn here, as a path; assets/report.js only adds the cursor, from the points beside it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "strata/base/units.h"
#include "strata/report/html.h"

namespace strata {
namespace {

constexpr double kWidth = 680;
constexpr double kHeight = 340;
constexpr double kLeft = 46;
constexpr double kRight = 16;
constexpr double kTop = 14;
constexpr double kBottom = 44;
constexpr std::size_t kMostPoints = 1500;  // more than pixels is only weight

struct Point {
  double step;
  double loss;
};

using Curve = std::vector<Point>;

// Means of neighbours, once there are more points than pixels.
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

Curve validation(const ReportInput& input) {
  Curve curve;
  for (const StepRecord& record : input.records) {
    if (record.validation_loss && std::isfinite(*record.validation_loss)) {
      curve.push_back({static_cast<double>(record.step), *record.validation_loss});
    }
  }
  const double last = static_cast<double>(input.records.back().step);
  const bool known = !curve.empty() && curve.back().step == last;
  if (!known && input.validation_loss && std::isfinite(*input.validation_loss)) {
    curve.push_back({last, *input.validation_loss});
  }
  return curve;
}

// A mean of as many neighbours before as behind: unlike a running mean it does not lag.
Curve smooth(const Curve& curve) {
  std::vector<double> sums = {0};
  for (const Point& point : curve) sums.push_back(sums.back() + point.loss);
  const std::size_t most = curve.size() / 60;
  Curve smoothed;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const std::size_t reach = std::min({most, i, curve.size() - 1 - i});
    const double sum = sums[i + reach + 1] - sums[i - reach];
    smoothed.push_back({curve[i].step, sum / static_cast<double>(2 * reach + 1)});
  }
  return smoothed;
}

class Plot {
 public:
  explicit Plot(const std::vector<const Curve*>& curves) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const Curve* curve : curves) {
      for (const Point& point : *curve) {
        low = std::min(low, point.loss);
        high = std::max(high, point.loss);
        first_ = std::min(first_, point.step);
        last_ = std::max(last_, point.step);
      }
    }
    const double margin = std::max(0.04 * (high - low), 0.01);
    low_ = std::max(0.0, low - margin);
    high_ = high + margin;
    if (last_ <= first_) last_ = first_ + 1;
  }

  std::string path(const Curve& curve, const std::string& style) const {
    std::string d;
    for (const Point& point : curve) {
      d += (d.empty() ? "M" : "L") + coordinate(x(point.step)) + " " + coordinate(y(point.loss));
    }
    return "<path class=\"" + style + "\" d=\"" + d + "\"/>";
  }

  std::string dots(const Curve& curve, const std::string& style) const {
    std::string marks;
    for (const Point& point : curve) {
      marks += "<circle class=\"" + style + "\" cx=\"" + coordinate(x(point.step)) + "\" cy=\"" +
               coordinate(y(point.loss)) + "\" r=\"3.5\"/>";
    }
    return marks;
  }

  std::string axes() const {
    std::string lines = "<g class=\"axis\">";
    const std::vector<double> losses = axis_ticks(low_, high_, 6);
    for (const double tick : losses) {
      lines += "<line x1=\"" + coordinate(kLeft) + "\" x2=\"" + coordinate(kWidth - kRight) +
               "\" y1=\"" + coordinate(y(tick)) + "\" y2=\"" + coordinate(y(tick)) +
               "\"/><text class=\"left\" x=\"" + coordinate(kLeft - 8) + "\" y=\"" +
               coordinate(y(tick)) + "\">" + format_double(tick, tick_decimals(losses)) + "</text>";
    }
    for (const double tick : axis_ticks(first_, last_, 7)) {
      if (tick != std::floor(tick)) continue;
      lines += "<text x=\"" + coordinate(x(tick)) + "\" y=\"" + coordinate(kHeight - 26) + "\">" +
               format_double(tick, 0) + "</text>";
    }
    return lines + "<text class=\"name\" x=\"" + coordinate((kLeft + kWidth - kRight) / 2) +
           "\" y=\"" + coordinate(kHeight - 7) + "\">step</text></g>";
  }

  nlohmann::json scale() const {
    return {{"first", first_},
            {"last", last_},
            {"low", low_},
            {"high", high_},
            {"left", kLeft},
            {"top", kTop},
            {"right", kWidth - kRight},
            {"bottom", kHeight - kBottom}};
  }

 private:
  double x(double step) const {
    return kLeft + (step - first_) / (last_ - first_) * (kWidth - kLeft - kRight);
  }
  double y(double loss) const {
    return kTop + (high_ - loss) / (high_ - low_) * (kHeight - kTop - kBottom);
  }

  double first_ = std::numeric_limits<double>::infinity();
  double last_ = 0;
  double low_ = 0;
  double high_ = 1;
};

nlohmann::json points(const Curve& curve) {
  nlohmann::json list = nlohmann::json::array();
  for (const Point& point : curve) {
    list.push_back({point.step, std::round(point.loss * 1e5) / 1e5});
  }
  return list;
}

}  // namespace

std::string loss_curve_section(const ReportInput& input) {
  if (input.records.empty()) return "";
  const Curve train = training(input.records);
  if (train.empty()) return "";
  const Curve mean = smooth(train), held_out = validation(input);
  const Plot plot({&train, &held_out});
  const nlohmann::json data = {
      {"scale", plot.scale()}, {"train", points(train)}, {"validation", points(held_out)}};
  std::string legend = "<span class=\"key\"><i class=\"line train\"></i>training</span>";
  if (!held_out.empty()) {
    legend += "<span class=\"key\"><i class=\"line validation\"></i>validation</span>";
  }
  return "<section class=\"card\" id=\"loss\"><div class=\"head\"><div><h2>Loss</h2>"
         "<p>Mean over the " +
         std::string(is_recommender(input) ? "samples" : "tokens") +
         " of a step, in nats; the bold line is smoothed.</p></div>"
         "</div><div class=\"legend\">" +
         legend + "</div><div class=\"plot\"><svg viewBox=\"0 0 " + coordinate(kWidth) + " " +
         coordinate(kHeight) + "\" role=\"img\" aria-label=\"Loss against steps\">" + plot.axes() +
         plot.path(train, "raw") + plot.path(mean, "train") + plot.path(held_out, "validation") +
         plot.dots(held_out, "validation") + "<line class=\"cursor\" y1=\"" + coordinate(kTop) +
         "\" y2=\"" + coordinate(kHeight - kBottom) +
         "\"/></svg></div><script type=\"application/json\">" + data.dump() +
         "</script></section>\n";
}

}  // namespace strata
