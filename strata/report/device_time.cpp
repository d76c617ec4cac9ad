// Begins and ends of all events are walked in order; between two of them nothing changes.
#include "strata/report/device_time.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/report/page.h"

namespace strata {
namespace {

struct Change {
  double seconds = 0;
  int track = 0;
  int by = 0;  // 1: begins, -1: ends
  int layer = -1;
};

std::vector<Change> changes_of(const std::vector<TrackEvent>& tracks, double begin, double end) {
  std::vector<Change> changes;
  for (const TrackEvent& event : tracks) {
    const double from = std::clamp(event.begin_seconds, begin, end);
    const double to = std::clamp(event.end_seconds, begin, end);
    if (to <= from) continue;
    const int track = static_cast<int>(event.track);
    changes.push_back({from, track, 1, event.layer});
    changes.push_back({to, track, -1, event.layer});
  }
  std::ranges::sort(changes, {},
                    [](const Change& change) { return std::pair(change.seconds, change.by); });
  return changes;
}

}  // namespace

DeviceTime device_time(const std::vector<TrackEvent>& tracks, double begin_seconds,
                       double end_seconds) {
  DeviceTime time;
  if (std::ranges::none_of(tracks, is_device_work, &TrackEvent::track)) return time;
  std::array<int, kNumTrackKinds> busy{};
  const auto is_busy = [&](TrackKind track) { return busy[static_cast<int>(track)] > 0; };
  double at = begin_seconds, gap = 0;
  const auto walk_to = [&](double seconds) {
    const double length = seconds - at;
    at = seconds;
    if (is_busy(TrackKind::kCompute)) {
      time.busy += length;
    } else if (is_busy(TrackKind::kCommunicate)) {
      time.exposed_communication += length;
    } else if (is_busy(TrackKind::kToDevice) || is_busy(TrackKind::kToHost)) {
      time.exposed_copies += length;
    } else {
      time.gaps += length;
      gap += length;
      return;
    }
    gap = 0;
  };
  const auto end_gap = [&](int layer) {
    if (gap <= time.longest_gap) return;
    time.longest_gap = gap;
    time.longest_gap_layer = layer;
  };
  for (const Change& change : changes_of(tracks, begin_seconds, end_seconds)) {
    walk_to(change.seconds);
    if (change.by > 0 && is_device_work(static_cast<TrackKind>(change.track)))
      end_gap(change.layer);
    busy[change.track] += change.by;
  }
  walk_to(end_seconds);
  end_gap(-1);
  return time;
}

namespace {

using Rows = std::vector<std::vector<std::string>>;

void add_row(Rows& rows, const ReportTimeline& side, std::size_t rank, const char* name) {
  if (rank >= side.tracks.size() || side.step_seconds <= 0) return;
  const DeviceTime time =
      device_time(side.tracks[rank], side.begin_seconds, side.begin_seconds + side.step_seconds);
  if (time.busy + time.exposed_communication <= 0) return;
  const auto cell = [&](double seconds) {
    return format_seconds(seconds) + ", " + percent(seconds / side.step_seconds);
  };
  const std::string before =
      time.longest_gap_layer >= 0 ? ", before layer " + std::to_string(time.longest_gap_layer) : "";
  rows.push_back({"rank " + std::to_string(rank) + ", " + name, cell(time.busy),
                  cell(time.exposed_communication), cell(time.exposed_copies), cell(time.gaps),
                  format_seconds(time.longest_gap) + before});
}

}  // namespace

std::optional<Card> device_card(const ReportInput& input) {
  Table table{
      .columns = {"", "computes", "only communicates", "only copies", "gaps", "longest gap"}};
  for (std::size_t rank = 0;
       rank < std::max(input.predicted.tracks.size(), input.measured.tracks.size()); ++rank) {
    add_row(table.rows, input.predicted, rank, "predicted");
    add_row(table.rows, input.measured, rank, "measured");
  }
  if (table.rows.empty()) return {};
  return Card{.id = "devices",
              .title = "Devices",
              .caption =
                  "What each did with the step of the timeline, by its own clock. In gaps it "
                  "waited for its rank to give it something.",
              .table = std::move(table)};
}

}  // namespace strata
