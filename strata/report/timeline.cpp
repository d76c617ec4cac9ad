// Gathers the events of one step, predicted and measured, as the spans of a timeline.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/base/units.h"
#include "strata/report/idle.h"
#include "strata/report/page.h"

namespace strata {
namespace {

// A span shorter than this share of the axis is thinner than a pixel even when zoomed in.
constexpr double kThinnest = 2e-4;

bool is_numbered(std::string_view style) {
  return style == "forward" || style == "recompute" || style == "backward" ||
         style == "weight-gradients";
}

struct TrackLook {
  const char* style;  // class of its colour in the style sheet
  const char* words;  // text of the tooltip
};

TrackLook look_of(TrackKind track) {
  static constexpr TrackLook kLooks[kNumTrackKinds] = {
      {"fetch", "weights to the device"},      {"offload", "gradients to the host"},
      {"update", "update on the host"},        {"disk-read", "read from the disk"},
      {"disk-write", "written to the disk"},   {"forward", "work of the device"},
      {"send", "exchanged with other devices"}};
  return kLooks[static_cast<int>(track)];
}

class Gatherer {
 public:
  explicit Gatherer(const ReportInput& input)
      : sides_{{"predicted", &input.predicted}, {"measured", &input.measured}} {
    for (const auto& [name, side] : sides_) {
      timeline_.seconds = std::max(timeline_.seconds, side->step_seconds);
      num_ranks_ = std::max(num_ranks_, side->ranks.size());
      for (const auto& events : side->ranks)
        for (const TraceEvent& event : events)
          timeline_.seconds = std::max(timeline_.seconds, event.end_seconds - side->begin_seconds);
      for (const auto& events : side->tracks) layers_numbered_ |= !events.empty();
    }
  }

  // If layers are fetched, their numbers are more useful than those of micro-batches.
  bool layers_numbered() const { return layers_numbered_; }

  Timeline gather() {
    if (timeline_.seconds <= 0) return {};
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      TimelineRank all{.name = "rank " + std::to_string(rank)};
      for (const auto& [name, side] : sides_)
        if (rank < side->ranks.size())
          all.rows.push_back({.name = name, .sides = {{name, actions(*side, rank)}}});
      for (int kind = 0; kind < kNumTrackKinds; ++kind)
        add_track(static_cast<TrackKind>(kind), rank, all.rows);
      timeline_.ranks.push_back(std::move(all));
    }
    for (const auto& [name, side] : sides_)
      if (!side->ranks.empty() && side->step_seconds > 0)
        timeline_.ends.push_back({.name = name,
                                  .words = name + " " + format_seconds(side->step_seconds),
                                  .at = rounded(side->step_seconds, 6)});
    return std::move(timeline_);
  }

 private:
  static TimelineSpan span(const char* style, const std::string& title, int number, double begin,
                           double end) {
    return {.style = style,
            .title = title + "\n" + format_seconds(end - begin) + ", from " +
                     format_seconds(std::max(0.0, begin)),
            .number = number >= 0 ? std::to_string(number) : "",
            .begin = rounded(begin, 6),
            .end = rounded(end, 6)};
  }

  std::vector<TimelineSpan> actions(const ReportTimeline& side, std::size_t rank) {
    std::vector<TimelineSpan> spans;
    for (const TraceEvent& event : side.ranks[rank]) {
      const EventLook& look = look_of(event.op);
      const bool numbered = is_numbered(look.style);
      const double begin = event.begin_seconds - side.begin_seconds;
      const double end = event.end_seconds - side.begin_seconds;
      if (!numbered && end - begin < kThinnest * timeline_.seconds) continue;
      std::string title = look.words;
      if (event.stage >= 0 && numbered) title += "\nstage " + std::to_string(event.stage);
      if (event.micro_batch >= 0) title += "\nmicro-batch " + std::to_string(event.micro_batch);
      if (event.first_layer >= 0) title += "\nlayers from " + std::to_string(event.first_layer);
      const int number = layers_numbered_ ? event.first_layer : event.micro_batch;
      spans.push_back(span(look.style, title, numbered ? number : -1, begin, end));
    }
    return spans;
  }

  // Omitted if both sides are idle.
  void add_track(TrackKind track, std::size_t rank, std::vector<TimelineRow>& rows) {
    TimelineRow row{.name = name_of(track), .is_track = true};
    const TrackLook look = look_of(track);
    bool idle = true;
    for (const auto& [name, side] : sides_) {
      row.sides.push_back({.name = name});
      if (rank >= side->tracks.size()) continue;
      for (const TrackEvent& event : side->tracks[rank]) {
        if (event.track != track) continue;
        idle = false;
        const std::string layer = event.layer >= 0 ? "\nlayer " + std::to_string(event.layer) : "";
        row.sides.back().spans.push_back(span(look.style, look.words + layer, event.layer,
                                              event.begin_seconds - side->begin_seconds,
                                              event.end_seconds - side->begin_seconds));
      }
    }
    if (!idle) rows.push_back(std::move(row));
  }

  std::pair<std::string, const ReportTimeline*> sides_[2];
  std::size_t num_ranks_ = 0;
  bool layers_numbered_ = false;
  Timeline timeline_;
};

}  // namespace

std::optional<Card> timeline_card(const ReportInput& input) {
  Gatherer gatherer(input);
  Timeline timeline = gatherer.gather();
  if (timeline.ranks.empty()) return {};
  std::string caption = std::string("One step on one axis; the numbers are ") +
                        (gatherer.layers_numbered() ? "layers" : "micro-batches") + ".";
  if (input.measured_step > 0)
    caption += " Measured: step " + std::to_string(input.measured_step) + ".";
  return Card{
      .id = "timeline", .title = "Timeline", .caption = caption, .timeline = std::move(timeline)};
}

}  // namespace strata
