// The drawing has a fixed width; assets/report.js lays it out again for the width of the page.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/base/units.h"
#include "strata/report/html.h"
#include "strata/report/idle.h"

namespace strata {
namespace {

// pixels
constexpr double kTimelineWidth = 1120;
constexpr double kGutter = 138;
constexpr double kTimelineRight = 14;
constexpr double kTimelineTop = 36;
constexpr double kRow = 24;
constexpr double kPair = 4;   // between the rows of a rank
constexpr double kRank = 16;  // between ranks
constexpr double kAxis = 30;
constexpr double kLane = 11;    // height of one side of a track
constexpr double kLaneGap = 7;  // between tracks, and between tracks and their rank
constexpr double kDigit = 6.5;

bool is_numbered(std::string_view style) {
  return style == "forward" || style == "recompute" || style == "backward";
}

struct LaneLook {
  const char* style;  // class of its colour in the style sheet
  const char* words;  // text of the tooltip
};

LaneLook look_of(LaneKind lane) {
  static constexpr LaneLook kLooks[kNumLaneKinds] = {
      {"fetch", "weights to the device"},      {"offload", "gradients to the host"},
      {"update", "update on the host"},        {"disk-read", "read from the disk"},
      {"disk-write", "written to the disk"},   {"forward", "work of the device"},
      {"send", "exchanged with other devices"}};
  return kLooks[static_cast<int>(lane)];
}

class Drawing {
 public:
  explicit Drawing(const ReportInput& input) : input_(input) {
    seconds_ = std::max(input.predicted.step_seconds, input.measured.step_seconds);
    for (const ReportTimeline* side : {&input.predicted, &input.measured}) {
      for (const auto& events : side->ranks) {
        for (const TraceEvent& event : events) {
          seconds_ = std::max(seconds_, event.end_seconds - side->begin_seconds);
        }
      }
    }
    ranks_ = std::max(input.predicted.ranks.size(), input.measured.ranks.size());
    for (const ReportTimeline* side : {&input.predicted, &input.measured})
      for (const auto& lanes : side->lanes) layers_numbered_ |= !lanes.empty();
  }

  // If layers are fetched, their numbers are more useful than those of micro-batches.
  bool layers_numbered() const { return layers_numbered_; }

  bool empty() const { return ranks_ == 0 || seconds_ <= 0; }
  bool shows(const std::string& style) const { return styles_.contains(style); }

  std::string svg() {
    double y = kTimelineTop;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const bool both = rank < input_.predicted.ranks.size() && rank < input_.measured.ranks.size();
      const double height = both ? 2 * kRow + kPair : kRow;
      text(0, y + height / 2, "rank", "rank " + std::to_string(rank));
      if (rank < input_.predicted.ranks.size()) y = row(input_.predicted, rank, y, "predicted");
      if (both) y += kPair;
      if (rank < input_.measured.ranks.size()) y = row(input_.measured, rank, y, "measured");
      for (int lane = 0; lane < kNumLaneKinds; ++lane)
        y = lanes(static_cast<LaneKind>(lane), rank, y);
      y += kRank;
    }
    const double bottom = y - kRank + 6;
    const std::string rows = std::move(body_);
    body_.clear();
    axis(bottom);
    const std::string grid = std::move(body_);
    body_.clear();
    end_of(input_.predicted, "predicted", bottom);
    end_of(input_.measured, "measured", bottom);
    return "<svg viewBox=\"0 0 " + coordinate(kTimelineWidth) + " " + coordinate(bottom + kAxis) +
           "\" role=\"img\" aria-label=\"Timeline of one step, predicted and measured, per rank\"" +
           " data-seconds=\"" + format_double_exactly(seconds_) + "\" data-gutter=\"" +
           coordinate(kGutter) + "\" data-right=\"" + coordinate(kTimelineRight) +
           "\" data-bottom=\"" + coordinate(bottom) + "\" data-top=\"" +
           coordinate(kTimelineTop - 8) + "\">" + kHatch + grid + rows + body_ +
           "<rect class=\"brush\" y=\"0\" height=\"" + coordinate(bottom) + "\"/></svg>";
  }

 private:
  static constexpr const char* kHatch =
      "<defs><pattern id=\"hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" class=\"hatch-ground\"/>"
      "<rect width=\"2\" height=\"6\" class=\"hatch-line\"/></pattern></defs>";

  double x(double seconds) const {
    return kGutter + seconds / seconds_ * (kTimelineWidth - kGutter - kTimelineRight);
  }

  void text(double at_x, double at_y, const std::string& style, const std::string& words) {
    body_ += "<text class=\"" + style + "\" x=\"" + coordinate(at_x) + "\" y=\"" +
             coordinate(at_y) + "\">" + escape_html(words) + "</text>";
  }

  static std::string track(double y, double height) {
    return "<rect class=\"track\" x=\"" + coordinate(kGutter) + "\" y=\"" + coordinate(y) +
           "\" width=\"" + coordinate(kTimelineWidth - kGutter - kTimelineRight) + "\" height=\"" +
           coordinate(height) + "\" rx=\"3\"/>";
  }

  double row(const ReportTimeline& side, std::size_t rank, double y, const char* name) {
    body_ += track(y, kRow);
    text(kGutter - 10, y + kRow / 2, "side", name);
    body_ += "<g class=\"" + std::string(name) + "\">";
    for (const TraceEvent& event : side.ranks[rank]) {
      span(event, event.begin_seconds - side.begin_seconds, event.end_seconds - side.begin_seconds,
           y, rank, name);
    }
    body_ += "</g>\n";
    return y + kRow;
  }

  static std::vector<LaneEvent> events_of(const ReportTimeline& side, LaneKind lane,
                                          std::size_t rank) {
    std::vector<LaneEvent> events;
    if (rank >= side.lanes.size()) return events;
    std::ranges::copy_if(side.lanes[rank], std::back_inserter(events),
                         [&](const LaneEvent& event) { return event.lane == lane; });
    return events;
  }

  // Predicted above measured, as for ranks, without a gap; omitted if both are idle.
  double lanes(LaneKind lane, std::size_t rank, double y) {
    const std::pair<const ReportTimeline*, const char*> sides[] = {{&input_.predicted, "predicted"},
                                                                   {&input_.measured, "measured"}};
    const bool none = std::ranges::all_of(
        sides, [&](const auto& side) { return events_of(*side.first, lane, rank).empty(); });
    if (none) return y;
    y += kLaneGap;
    const double height = 2 * kLane;
    body_ += track(y, height);
    text(kGutter - 10, y + height / 2, "side", name_of(lane));
    for (const auto& [side, name] : sides) {
      body_ += "<g class=\"lane " + std::string(name) + "\">";
      for (const LaneEvent& event : events_of(*side, lane, rank))
        lane_span(event, *side, rank, y, name);
      body_ += "</g>\n";
      y += kLane;
    }
    return y;
  }

  void lane_span(const LaneEvent& event, const ReportTimeline& side, std::size_t rank, double y,
                 const char* name) {
    const LaneLook look = look_of(event.lane);
    const double begin = event.begin_seconds - side.begin_seconds;
    const double end = event.end_seconds - side.begin_seconds;
    styles_.insert(look.style);
    const std::string layer = event.layer >= 0 ? std::to_string(event.layer) : "";
    draw({.style = look.style,
          .title = "rank " + std::to_string(rank) + ", " + name + ": " + look.words +
                   (layer.empty() ? "" : "\nlayer " + layer),
          .number = layer,
          .begin = begin,
          .end = end,
          .y = y,
          .height = kLane});
  }

  void span(const TraceEvent& event, double begin, double end, double y, std::size_t rank,
            const char* side) {
    const EventLook& look = look_of(event.op);
    const bool numbered = is_numbered(look.style);
    // A span thinner than a pixel even when zoomed in is omitted.
    if (!numbered && end - begin < 2e-4 * seconds_) return;
    styles_.insert(look.style);
    std::string title = "rank " + std::to_string(rank) + ", " + side + ": " + look.words;
    if (event.stage >= 0 && numbered) title += "\nstage " + std::to_string(event.stage);
    if (event.micro_batch >= 0) title += "\nmicro-batch " + std::to_string(event.micro_batch);
    if (event.first_layer >= 0) title += "\nlayers from " + std::to_string(event.first_layer);
    const int number = layers_numbered_ ? event.first_layer : event.micro_batch;
    draw({.style = look.style,
          .title = title,
          .number = numbered && number >= 0 ? std::to_string(number) : "",
          .begin = begin,
          .end = end,
          .y = y,
          .height = kRow});
  }

  struct Span {
    const char* style;
    std::string title;
    std::string number;
    double begin, end;  // seconds of the step
    double y, height;
  };

  void draw(const Span& span) {
    const double left = x(std::max(0.0, span.begin)),
                 width = std::max(0.4, x(span.end) - left - 0.6);
    body_ += "<g class=\"span " + std::string(span.style) + "\" data-b=\"" +
             format_double(span.begin, 6) + "\" data-e=\"" + format_double(span.end, 6) +
             "\"><title>" + span.title + "\n" + format_seconds(span.end - span.begin) + ", from " +
             format_seconds(std::max(0.0, span.begin)) + "</title><rect x=\"" + coordinate(left) +
             "\" y=\"" + coordinate(span.y) + "\" width=\"" + coordinate(width) + "\" height=\"" +
             coordinate(span.height) + "\" rx=\"2\"/>";
    if (!span.number.empty()) {
      const bool fits = width > kDigit * static_cast<double>(span.number.size()) + 4;
      body_ += "<text x=\"" + coordinate(left + width / 2) + "\" y=\"" +
               coordinate(span.y + span.height / 2) + "\"" + (fits ? "" : " display=\"none\"") +
               ">" + span.number + "</text>";
    }
    body_ += "</g>";
  }

  void axis(double bottom) {
    body_ += "<g class=\"axis\">";
    for (const double tick : axis_ticks(0, seconds_, 8)) {
      body_ += "<line x1=\"" + coordinate(x(tick)) + "\" x2=\"" + coordinate(x(tick)) + "\" y1=\"" +
               coordinate(kTimelineTop - 8) + "\" y2=\"" + coordinate(bottom) + "\"/>";
      text(x(tick), bottom + 17, "", format_seconds(tick));
    }
    body_ += "</g>";
  }

  void end_of(const ReportTimeline& side, const std::string& name, double bottom) {
    if (side.ranks.empty() || side.step_seconds <= 0) return;
    const double at = x(side.step_seconds);
    body_ += "<g class=\"end " + name + "\" data-at=\"" + format_double(side.step_seconds, 6) +
             "\"><line x1=\"" + coordinate(at) + "\" x2=\"" + coordinate(at) + "\" y1=\"" +
             coordinate(kTimelineTop - 8) + "\" y2=\"" + coordinate(bottom) + "\"/>";
    const double other =
        name == "predicted" ? input_.measured.step_seconds : input_.predicted.step_seconds;
    // The earlier end is written to the left of its line, the later one also, but one line higher.
    text(at - 5, side.step_seconds < other ? 21 : 8, "",
         name + " " + format_seconds(side.step_seconds));
    body_ += "</g>";
  }

  const ReportInput& input_;
  double seconds_ = 0;
  std::size_t ranks_ = 0;
  bool layers_numbered_ = false;
  std::set<std::string> styles_;  // drawn so far
  std::string body_;
};

std::string legend(const Drawing& drawing) {
  std::string items;
  for (const char* style : {"forward", "recompute", "backward", "update", "wait", "send", "fetch",
                            "offload", "disk-read", "disk-write"}) {
    if (!drawing.shows(style)) continue;
    std::string words = style;
    std::ranges::replace(words, '-', ' ');
    items +=
        "<span class=\"key\"><svg width=\"14\" height=\"14\" aria-hidden=\"true\"><g class=\"" +
        std::string(style) + "\"><rect width=\"14\" height=\"14\" rx=\"3\"/></g></svg>" + words +
        "</span>";
  }
  return items;
}

}  // namespace

std::string timeline_section(const ReportInput& input) {
  Drawing drawing(input);
  if (drawing.empty()) return "";
  const std::string svg = drawing.svg();
  std::string caption = std::string("One step on one axis; the numbers are ") +
                        (drawing.layers_numbered() ? "layers" : "micro-batches") + ".";
  if (input.measured_step > 0) {
    caption += " Measured: step " + std::to_string(input.measured_step) + ".";
  }
  return "<section class=\"card\" id=\"timeline\"><div class=\"head\"><div><h2>Timeline</h2><p>" +
         caption +
         "</p></div><div class=\"tools\" hidden><button data-zoom=\"2\" aria-label=\"Zoom in\">+"
         "</button><button data-zoom=\"0.5\" aria-label=\"Zoom out\">\u2212</button>"
         "<button data-zoom=\"0\">Whole step</button></div></div><div class=\"legend\">" +
         legend(drawing) +
         "<span class=\"hint\" hidden>drag to zoom in, double-click to zoom out</span>" +
         "</div><div class=\"plot\">" + svg + "</div></section>\n";
}

}  // namespace strata
