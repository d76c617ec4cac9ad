// Curves are drawn here, as paths. assets/report.js adds the cursor only; it reads the points from
// the page.
#include "strata/report/curve_plot.h"

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

class Plot {
 public:
  explicit Plot(const std::vector<DrawnCurve>& curves) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const DrawnCurve& drawn : curves) {
      for (const CurvePoint& point : drawn.curve) {
        low = std::min(low, point.value);
        high = std::max(high, point.value);
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
    for (const CurvePoint& point : curve) {
      d += (d.empty() ? "M" : "L") + coordinate(x(point.step)) + " " + coordinate(y(point.value));
    }
    return "<path class=\"" + style + "\" d=\"" + d + "\"/>";
  }

  std::string dots(const Curve& curve, const std::string& style) const {
    std::string marks;
    for (const CurvePoint& point : curve) {
      marks += "<circle class=\"" + style + "\" cx=\"" + coordinate(x(point.step)) + "\" cy=\"" +
               coordinate(y(point.value)) + "\" r=\"3.5\"/>";
    }
    return marks;
  }

  std::string axes() const {
    std::string lines = "<g class=\"axis\">";
    const std::vector<double> values = axis_ticks(low_, high_, 6);
    for (const double tick : values) {
      lines += "<line x1=\"" + coordinate(kLeft) + "\" x2=\"" + coordinate(kWidth - kRight) +
               "\" y1=\"" + coordinate(y(tick)) + "\" y2=\"" + coordinate(y(tick)) +
               "\"/><text class=\"left\" x=\"" + coordinate(kLeft - 8) + "\" y=\"" +
               coordinate(y(tick)) + "\">" + format_double(tick, tick_decimals(values)) + "</text>";
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
  double y(double value) const {
    return kTop + (high_ - value) / (high_ - low_) * (kHeight - kTop - kBottom);
  }

  double first_ = std::numeric_limits<double>::infinity();
  double last_ = 0;
  double low_ = 0;
  double high_ = 1;
};

nlohmann::json points(const Curve& curve) {
  nlohmann::json list = nlohmann::json::array();
  for (const CurvePoint& point : curve)
    list.push_back({point.step, std::round(point.value * 1e5) / 1e5});
  return list;
}

}  // namespace

std::string curve_section(CurveCard card) {
  std::erase_if(card.curves, [](const DrawnCurve& drawn) { return drawn.curve.empty(); });
  if (card.curves.empty()) return "";
  const Plot plot(card.curves);
  nlohmann::json data = {{"scale", plot.scale()}, {"curves", nlohmann::json::array()}};
  std::string legend, drawn;
  for (const DrawnCurve& one : card.curves) {
    drawn += plot.path(one.curve, one.style);
    if (one.dots) drawn += plot.dots(one.curve, one.style);
    if (one.name.empty()) continue;
    legend += "<span class=\"key\"><i class=\"line " + one.style + "\"></i>" + one.name + "</span>";
    data["curves"].push_back({{"name", one.name}, {"points", points(one.curve)}});
  }
  return "<section class=\"card curve\" id=\"" + card.id + "\"><div class=\"head\"><div><h2>" +
         card.title + "</h2><p>" + card.caption + "</p></div></div><div class=\"legend\">" +
         legend + "</div><div class=\"plot\"><svg viewBox=\"0 0 " + coordinate(kWidth) + " " +
         coordinate(kHeight) + "\" role=\"img\" aria-label=\"" + card.label + "\">" + plot.axes() +
         drawn + "<line class=\"cursor\" y1=\"" + coordinate(kTop) + "\" y2=\"" +
         coordinate(kHeight - kBottom) + "\"/></svg></div><script type=\"application/json\">" +
         data.dump() + "</script></section>\n";
}

}  // namespace strata
