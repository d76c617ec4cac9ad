#include <algorithm>
#include <utility>

#include "strata/base/units.h"
#include "strata/report/html.h"
#include "strata/report/idle.h"
#include "strata/report/report_parts.h"

namespace strata::report {
namespace {

std::string percent(double share) { return format_double(100 * share, 1) + " %"; }

// Styles are "use0" to "use7", in the order of TimeUse.
std::string style_of(int use) { return "use" + std::to_string(use); }

class Bars {
 public:
  explicit Bars(const ReportInput& input)
      : predicted_(splits(input.predicted)), measured_(splits(input.measured)) {
    for (const auto* side : {&predicted_, &measured_})
      for (const TimeSplit& split : *side) full_ = std::max(full_, total(split));
  }

  std::size_t ranks() const { return std::max(predicted_.size(), measured_.size()); }
  bool empty() const { return full_ <= 0; }

  std::string legend() const {
    std::string keys;
    for (int use = 0; use < kNumTimeUses; ++use) {
      keys += "<span class=\"key\"><i class=\"box " + style_of(use) + "\"></i>" +
              name_of(static_cast<TimeUse>(use)) + "</span>";
    }
    return keys;
  }

  std::string rank(std::size_t number) const {
    std::string bars, figures;
    for (const auto& [name, side] :
         {std::pair{"predicted", &predicted_}, {"measured", &measured_}}) {
      if (number >= side->size() || total((*side)[number]) <= 0) continue;
      const TimeSplit& split = (*side)[number];
      bars += "<div class=\"bar " + std::string(name) + "\">" + segments(split, name) + "</div>";
      figures += "<span>" + percent(split.idle_seconds() / total(split)) + " <em>idle, " + name +
                 "</em></span>";
    }
    return "<div class=\"rank\">rank " + std::to_string(number) + "</div><div class=\"bars\">" +
           bars + "</div><div class=\"figures\">" + figures + "</div>";
  }

 private:
  static std::vector<TimeSplit> splits(const ReportTimeline& side) {
    if (side.step_seconds <= 0) return {};
    std::vector<TimeSplit> splits =
        attribute_time(side.ranks, side.begin_seconds, side.begin_seconds + side.step_seconds);
    for (std::size_t rank = 0; rank < splits.size(); ++rank)
      if (side.ranks[rank].empty()) splits[rank] = {};  // of another process: not known
    return splits;
  }

  static double total(const TimeSplit& split) {
    double seconds = 0;
    for (const double use : split.seconds) seconds += use;
    return seconds;
  }

  std::string segments(const TimeSplit& split, const std::string& name) const {
    std::string parts;
    for (int use = 0; use < kNumTimeUses; ++use) {
      const double seconds = split.seconds[use];
      if (seconds <= 0) continue;
      const std::string title = name + " " + name_of(static_cast<TimeUse>(use)) + ": " +
                                format_seconds(seconds) + ", " + percent(seconds / total(split));
      parts += "<div class=\"segment " + style_of(use) +
               "\" style=\"width:" + format_double(100 * seconds / full_, 3) + "%\" data-tip=\"" +
               title + "\" title=\"" + title + "\"></div>";
    }
    return parts;
  }

  std::vector<TimeSplit> predicted_, measured_;
  double full_ = 0;  // the longer step
};

}  // namespace

std::string idle(const ReportInput& input) {
  const Bars bars(input);
  if (bars.empty()) return "";
  std::string rows;
  for (std::size_t rank = 0; rank < bars.ranks(); ++rank) rows += bars.rank(rank);
  return "<section class=\"card\" id=\"idle\"><div class=\"head\"><div><h2>Where the time goes</h2>"
         "<p>The step of the timeline, every instant counted once; the upper bar of a rank was "
         "predicted. Fill and drain belong to any pipeline: more micro-batches make them small. "
         "Imbalance is a wait for a slower stage, transfer for a message under way.</p></div></div>"
         "<div class=\"legend\">" +
         bars.legend() + "</div><div class=\"memory\">" + rows + "</div></section>\n";
}

}  // namespace strata::report
