// Gathers the time and the memory of each rank as bars, predicted above measured.
#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "strata/base/units.h"
#include "strata/report/device_time.h"
#include "strata/report/idle.h"
#include "strata/report/page.h"

namespace strata {
namespace {

// Styles are "use0" to "use12", in the order of TimeUse.
std::string style_of(int use) { return "use" + std::to_string(use); }

struct TimedRank {
  std::size_t rank;
  const char* side;
  TimeSplit split;
  double seconds;  // sum of all uses
};

// Ranks in ascending order, predicted before measured. Without the ranks of other processes, of
// which no event is known.
std::vector<TimedRank> timed_ranks(const ReportInput& input) {
  std::vector<TimedRank> timed;
  for (const auto& [name, side] :
       {std::pair{"predicted", &input.predicted}, {"measured", &input.measured}}) {
    if (side->step_seconds <= 0) continue;
    const std::vector<TimeSplit> splits = attribute_time(
        side->ranks, side->begin_seconds, side->begin_seconds + side->step_seconds, side->tracks);
    for (std::size_t rank = 0; rank < splits.size(); ++rank) {
      double seconds = 0;
      for (const double use : splits[rank].seconds) seconds += use;
      if (!side->ranks[rank].empty() && seconds > 0)
        timed.push_back({rank, name, splits[rank], seconds});
    }
  }
  std::ranges::sort(timed, {}, [](const TimedRank& each) {
    return std::pair(each.rank, std::string_view(each.side) == "measured");
  });
  return timed;
}

std::string name_of(const TimedRank& timed) { return "rank " + std::to_string(timed.rank); }

Bar time_bar(const TimedRank& timed, double full_seconds) {
  Bar bar{.style = timed.side};
  for (int use = 0; use < kNumTimeUses; ++use) {
    const double seconds = timed.split.seconds[use];
    if (seconds <= 0) continue;
    bar.segments.push_back({style_of(use),
                            timed.side + std::string(" ") + name_of(static_cast<TimeUse>(use)) +
                                ": " + format_seconds(seconds) + ", " +
                                percent(seconds / timed.seconds),
                            rounded(100 * seconds / full_seconds, 3)});
  }
  return bar;
}

std::vector<BarRow> time_bars(const std::vector<TimedRank>& ranks) {
  const double full_seconds = std::ranges::max(ranks, {}, &TimedRank::seconds).seconds;
  std::vector<BarRow> rows;
  for (const TimedRank& timed : ranks) {
    if (rows.empty() || rows.back().name != name_of(timed))
      rows.push_back({.name = name_of(timed)});
    rows.back().bars.push_back(time_bar(timed, full_seconds));
    rows.back().figures.push_back(
        {percent(timed.split.idle_seconds() / timed.seconds), std::string("idle, ") + timed.side});
  }
  return rows;
}

std::vector<LegendKey> time_legend(const std::vector<TimedRank>& ranks) {
  std::vector<LegendKey> keys;
  for (int use = 0; use < kNumTimeUses; ++use)
    if (std::ranges::any_of(ranks, [&](const auto& any) { return any.split.seconds[use] > 0; }))
      keys.push_back({style_of(use), name_of(static_cast<TimeUse>(use))});
  return keys;
}

// The bars as numbers; columns without values are omitted.
Table time_table(const std::vector<TimedRank>& ranks) {
  constexpr std::pair<const char*, double TimeSums::*> kColumns[] = {
      {"work", &TimeSums::work},
      {"exposed communication", &TimeSums::exposed_communication},
      {"waits for other ranks", &TimeSums::rank_waits},
      {"waits for memory", &TimeSums::memory_waits},
      {"launches", &TimeSums::launch_waits},
      {"other", &TimeSums::other}};
  Table table{.columns = {""}};
  for (const TimedRank& timed : ranks) table.rows.push_back({name_of(timed) + ", " + timed.side});
  for (const auto& [column, seconds] : kColumns) {
    const auto value = [s = seconds](const TimedRank& timed) { return sums_of(timed.split).*s; };
    if (std::ranges::none_of(ranks, [&](const auto& any) { return value(any) > 0; })) continue;
    table.columns.emplace_back(column);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      table.rows[i].push_back(format_seconds(value(ranks[i])));
  }
  return table;
}

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

  std::vector<LegendKey> legend() const {
    std::vector<LegendKey> keys;
    for (const std::string& kind : kinds_)
      if (shown_.contains(kind)) keys.push_back({style_of(kind), kind});
    keys.push_back({"measured", "measured peak"});
    return keys;
  }

  // The memory of each rank's device and, if any state lives there, of its host, on one scale.
  // Embedding tables grow with the ids in the log, so their bytes are measured and not predicted.
  std::vector<BarRow> rows() const {
    std::vector<BarRow> rows;
    for (std::size_t rank = 0; rank < input_.memory.size(); ++rank) {
      const std::string name = "rank " + std::to_string(rank);
      rows.push_back(row_of(input_.memory[rank], name));
      if (draws_budget_) rows.back().budget_percent = percent_of(input_.budget_bytes);
      if (rank < input_.host_memory.size())
        rows.push_back(row_of(input_.host_memory[rank], name + ", host"));
    }
    if (rows_.measured_peak > 0) rows.push_back(row_of(rows_, "embeddings, host"));
    return rows;
  }

 private:
  BarRow row_of(const ReportMemory& rank, const std::string& name) const {
    BarRow row{.name = name};
    const std::string predicted = format_bytes(rank.predicted_peak);
    if (rank.predicted_peak > 0) {
      row.bars.push_back({.segments = segments(rank)});
      row.figures.push_back({predicted, "predicted"});
    }
    if (rank.measured_peak <= 0) return row;
    const Compared peaks{static_cast<double>(rank.predicted_peak),
                         static_cast<double>(rank.measured_peak)};
    const std::string measured = format_bytes(rank.measured_peak);
    row.bars.push_back(
        {.segments = {{"measured", "measured peak: " + measured, percent_of(rank.measured_peak)}}});
    row.figures.push_back(
        {measured,
         "measured" + (rank.predicted_peak > 0 ? ", " + signed_percent(peaks.difference()) : "")});
    return row;
  }

  // The bytes of each kind, then those of no kind.
  std::vector<BarSegment> segments(const ReportMemory& rank) const {
    const std::string peak = format_bytes(rank.predicted_peak);
    std::vector<BarSegment> parts;
    std::int64_t rest = rank.predicted_peak;
    for (const auto& [name, bytes] : rank.kinds) {
      if (bytes <= 0) continue;
      parts.push_back({style_of(name),
                       name + ": " + format_bytes(bytes) + " of " + peak + " predicted",
                       percent_of(bytes)});
      rest -= bytes;
    }
    if (rest > 0) parts.push_back({"rest", "predicted peak: " + peak, percent_of(rest)});
    return parts;
  }

  // By the kind's index among all kinds, so that it is the same in every report.
  std::string style_of(const std::string& kind) const {
    return "kind" +
           std::to_string((std::ranges::find(kinds_, kind) - kinds_.begin()) % kKindColours);
  }

  double percent_of(std::int64_t bytes) const {
    return rounded(100 * static_cast<double>(bytes) / full_, 3);
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

std::optional<Card> idle_card(const ReportInput& input) {
  const std::vector<TimedRank> ranks = timed_ranks(input);
  if (ranks.empty()) return {};
  Card card{.id = "idle",
            .title = "Where the time goes",
            .caption =
                "The step of the timeline, every instant counted once; the upper bar of a "
                "rank was predicted. Fill and drain belong to any pipeline: more "
                "micro-batches make them small. Imbalance is a wait for a slower stage, "
                "transfer for a message under way, link for what lives on the host.",
            .legend = time_legend(ranks),
            .bars = time_bars(ranks)};
  // The rank's own spans are then launches, from which the device would appear idle.
  const bool devices = std::ranges::any_of(input.measured.tracks, [](const auto& tracks) {
    return std::ranges::any_of(tracks, is_device_work, &TrackEvent::track);
  });
  if (devices)
    card.note = "Measured ranks gave their work to devices: what those did stands below.";
  else
    card.table = time_table(ranks);
  return card;
}

std::optional<Card> memory_card(const ReportInput& input) {
  const MemoryBars bars(input);
  if (bars.empty()) return {};
  std::string caption =
      "What lies in the memory of every rank at its predicted peak, and the peak "
      "that was measured.";
  if (input.budget_bytes > 0) {
    caption += " Budget of a rank: " + format_bytes(input.budget_bytes) +
               (bars.draws_budget() ? ", the dashed line." : ".");
  }
  return Card{.id = "memory",
              .title = "Memory",
              .caption = caption,
              .legend = bars.legend(),
              .bars = bars.rows()};
}

}  // namespace strata
