// Draws the time and the memory of each rank as bars, predicted above measured.
#include <algorithm>
#include <set>
#include <utility>

#include "strata/base/units.h"
#include "strata/report/device_time.h"
#include "strata/report/html.h"
#include "strata/report/idle.h"

namespace strata {
namespace {

// Styles are "use0" to "use12", in the order of TimeUse.
std::string style_of(int use) { return "use" + std::to_string(use); }

class TimeBars {
 public:
  explicit TimeBars(const ReportInput& input)
      : predicted_(splits(input.predicted)), measured_(splits(input.measured)) {
    for (const auto* side : {&predicted_, &measured_})
      for (const TimeSplit& split : *side) full_ = std::max(full_, total(split));
  }

  std::size_t ranks() const { return std::max(predicted_.size(), measured_.size()); }
  bool empty() const { return full_ <= 0; }

  std::string legend() const {
    std::string keys;
    for (int use = 0; use < kNumTimeUses; ++use) {
      const auto spent = [&](const TimeSplit& split) { return split.seconds[use] > 0; };
      if (std::ranges::none_of(predicted_, spent) && std::ranges::none_of(measured_, spent))
        continue;
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

  // The same as numbers; columns without values are omitted.
  std::string table() const {
    constexpr std::pair<const char*, double TimeSums::*> kColumns[] = {
        {"work", &TimeSums::work},
        {"exposed communication", &TimeSums::exposed_communication},
        {"waits for other ranks", &TimeSums::rank_waits},
        {"waits for memory", &TimeSums::memory_waits},
        {"launches", &TimeSums::launch_waits},
        {"other", &TimeSums::other}};
    std::vector<std::pair<std::string, TimeSums>> sums;
    for (std::size_t number = 0; number < ranks(); ++number)
      for (const auto& [name, side] :
           {std::pair{"predicted", &predicted_}, {"measured", &measured_}})
        if (number < side->size() && total((*side)[number]) > 0)
          sums.emplace_back("rank " + std::to_string(number) + ", " + name,
                            sums_of((*side)[number]));
    std::vector<std::string> columns{""};
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : sums) rows.push_back({row.first});
    for (const auto& [column, seconds] : kColumns) {
      if (std::ranges::none_of(sums, [s = seconds](const auto& any) { return any.second.*s > 0; }))
        continue;
      columns.emplace_back(column);
      for (std::size_t i = 0; i < sums.size(); ++i)
        rows[i].push_back(format_seconds(sums[i].second.*seconds));
    }
    return table_html(columns, rows);
  }

 private:
  static std::vector<TimeSplit> splits(const ReportTimeline& side) {
    if (side.step_seconds <= 0) return {};
    std::vector<TimeSplit> splits = attribute_time(
        side.ranks, side.begin_seconds, side.begin_seconds + side.step_seconds, side.lanes);
    for (std::size_t rank = 0; rank < splits.size(); ++rank)
      if (side.ranks[rank].empty()) splits[rank] = {};  // rank of another process: unknown
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

// A budget far above the peaks would make every bar tiny, so it is only named.
constexpr double kLargestBudget = 2.5;

constexpr int kKindColours = 12;  // that the style sheet has

class MemoryBars {
 public:
  explicit MemoryBars(const ReportInput& input) : input_(input) {
    if (input.rows_are_local) rows_ = memory_of_rows(input);
    std::int64_t peak = rows_.measured_peak;
    for (const auto* tier : {&input.memory, &input.host_memory}) {
      for (const ReportMemory& rank : *tier) {
        peak = std::max({peak, rank.predicted_peak, rank.measured_peak});
        for (const auto& [name, bytes] : rank.kinds) {
          if (std::ranges::find(kinds_, name) == kinds_.end()) kinds_.push_back(name);
          if (bytes > 0) shown_.insert(name);
        }
      }
    }
    full_ = static_cast<double>(peak);
    const double budget = static_cast<double>(input.budget_bytes);
    draws_budget_ = budget > 0 && budget < kLargestBudget * full_;
    full_ = std::max(full_, draws_budget_ ? budget : 0.0) * 1.01;
  }

  bool empty() const { return full_ <= 0; }
  bool draws_budget() const { return draws_budget_; }

  std::string legend() const {
    std::string keys;
    for (const std::string& kind : kinds_)
      if (shown_.contains(kind))
        keys += "<span class=\"key\"><i class=\"box " + style_of(kind) + "\"></i>" +
                escape_html(kind) + "</span>";
    return keys + "<span class=\"key\"><i class=\"box measured\"></i>measured peak</span>";
  }

  // Tables grow with the ids in the log, so their bytes are measured and not predicted.
  std::string rows_of_embeddings() const {
    return rows_.measured_peak > 0 ? row_of(rows_, "embeddings, host", false) : "";
  }

  // The memory of the rank's device and, if any state lives there, of its host, on one scale.
  std::string rank(std::size_t number) const {
    const std::string name = "rank " + std::to_string(number);
    std::string rows = row_of(input_.memory[number], name, draws_budget_);
    if (number < input_.host_memory.size())
      rows += row_of(input_.host_memory[number], name + ", host", false);
    return rows;
  }

 private:
  std::string row_of(const ReportMemory& rank, const std::string& name, bool draws_budget) const {
    const Compared peaks{static_cast<double>(rank.predicted_peak),
                         static_cast<double>(rank.measured_peak)};
    std::string row = "<div class=\"rank\">" + name + "</div><div class=\"bars\">";
    if (rank.predicted_peak > 0) row += "<div class=\"bar\">" + segments(rank) + "</div>";
    if (rank.measured_peak > 0) row += "<div class=\"bar\">" + measured(rank) + "</div>";
    if (draws_budget) {
      row += "<div class=\"budget\" style=\"left:" + width_of(input_.budget_bytes) + "\"></div>";
    }
    row += "</div><div class=\"figures\">";
    if (rank.predicted_peak > 0)
      row += "<span>" + format_bytes(rank.predicted_peak) + " <em>predicted</em></span>";
    if (rank.measured_peak > 0) {
      row += "<span>" + format_bytes(rank.measured_peak) + " <em>measured" +
             (rank.predicted_peak > 0 ? ", " + signed_percent(peaks.difference()) : "") +
             "</em></span>";
    }
    return row + "</div>";
  }

  // By the kind's index among all kinds, so that it is the same in every report.
  std::string style_of(const std::string& kind) const {
    return "kind" +
           std::to_string((std::ranges::find(kinds_, kind) - kinds_.begin()) % kKindColours);
  }

  std::string width_of(std::int64_t bytes) const {
    return format_double(100 * static_cast<double>(bytes) / full_, 3) + "%";
  }

  std::string segments(const ReportMemory& rank) const {
    std::string parts;
    std::int64_t known = 0;
    for (const auto& [name, bytes] : rank.kinds) {
      if (bytes <= 0) continue;
      parts += segment(style_of(name), bytes,
                       name + ": " + format_bytes(bytes) + " of " +
                           format_bytes(rank.predicted_peak) + " predicted");
      known += bytes;
    }
    if (rank.predicted_peak > known) {
      parts += segment("rest", rank.predicted_peak - known,
                       "predicted peak: " + format_bytes(rank.predicted_peak));
    }
    return parts;
  }

  std::string measured(const ReportMemory& rank) const {
    return segment("measured", rank.measured_peak,
                   "measured peak: " + format_bytes(rank.measured_peak));
  }

  std::string segment(const std::string& style, std::int64_t bytes,
                      const std::string& title) const {
    return "<div class=\"segment " + style + "\" style=\"width:" + width_of(bytes) +
           "\" data-tip=\"" + escape_html(title) + "\" title=\"" + escape_html(title) + "\"></div>";
  }

  static ReportMemory memory_of_rows(const ReportInput& input) {
    ReportMemory rows{.measured_peak = sum_of(input.embeddings).bytes};
    for (const StepRecord& record : input.records)
      if (record.embedding && record.embedding->size)
        rows.measured_peak = std::max(rows.measured_peak, record.embedding->size->bytes);
    return rows;
  }

  const ReportInput& input_;
  ReportMemory rows_;
  std::vector<std::string> kinds_;
  std::set<std::string> shown_;  // kinds for which any rank has bytes
  double full_ = 0;
  bool draws_budget_ = false;
};

}  // namespace

std::string idle_section(const ReportInput& input) {
  const TimeBars bars(input);
  if (bars.empty()) return "";
  std::string rows;
  for (std::size_t rank = 0; rank < bars.ranks(); ++rank) rows += bars.rank(rank);
  // The rank's own spans are then launches, from which the device would appear idle.
  const bool devices = std::ranges::any_of(input.measured.lanes, [](const auto& lanes) {
    return std::ranges::any_of(lanes, is_device_work, &LaneEvent::lane);
  });
  return "<section class=\"card\" id=\"idle\"><div class=\"head\"><div><h2>Where the time goes</h2>"
         "<p>The step of the timeline, every instant counted once; the upper bar of a rank was "
         "predicted. Fill and drain belong to any pipeline: more micro-batches make them small. "
         "Imbalance is a wait for a slower stage, transfer for a message under way, link for what "
         "lives "
         "on the host.</p></div></div>"
         "<div class=\"legend\">" +
         bars.legend() + "</div><div class=\"memory\">" + rows + "</div>" +
         (devices ? "<p>Measured ranks gave their work to devices: what those did stands below.</p>"
                  : bars.table()) +
         "</section>\n";
}

std::string memory_section(const ReportInput& input) {
  const MemoryBars bars(input);
  if (bars.empty()) return "";
  std::string caption =
      "What lies in the memory of every rank at its predicted peak, and the peak "
      "that was measured.";
  if (input.budget_bytes > 0) {
    caption += " Budget of a rank: " + format_bytes(input.budget_bytes) +
               (bars.draws_budget() ? ", the dashed line." : ".");
  }
  std::string rows;
  for (std::size_t rank = 0; rank < input.memory.size(); ++rank) rows += bars.rank(rank);
  rows += bars.rows_of_embeddings();
  return "<section class=\"card\" id=\"memory\"><div class=\"head\"><div><h2>Memory</h2><p>" +
         caption + "</p></div></div><div class=\"legend\">" + bars.legend() +
         "</div><div class=\"memory\">" + rows + "</div></section>\n";
}

}  // namespace strata
