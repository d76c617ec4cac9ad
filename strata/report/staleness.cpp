// Gathers the staleness of a recommender's embeddings, and how long steps waited for them.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/units.h"
#include "strata/report/page.h"

namespace strata {
namespace {

// Classes of staleness in updates: low values are separate, high ones are grouped.
constexpr std::size_t kClassEnds[] = {1, 2, 3, 4, 8, 16, 32, 64};
constexpr std::size_t kClasses = std::size(kClassEnds);
// tables; further ones appear only in the list of numbers
constexpr std::size_t kMostBars = 24;

struct TableReads {
  std::string table;
  std::vector<std::int64_t> lacked{};  ///< rows read, by staleness in updates

  std::int64_t reads() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : lacked) sum += count;
    return sum;
  }
  double mean() const {
    double sum = 0;
    for (std::size_t i = 0; i < lacked.size(); ++i)
      sum += static_cast<double>(i) * static_cast<double>(lacked[i]);
    return sum / std::max(1.0, static_cast<double>(reads()));
  }
  void add(const std::vector<std::int64_t>& counts) {
    lacked.resize(std::max(lacked.size(), counts.size()));
    for (std::size_t i = 0; i < counts.size(); ++i) lacked[i] += counts[i];
  }
};

struct Waits {
  double seconds = 0, steps = 0, longest = 0;  ///< `steps`: total seconds of all steps
  std::int64_t longest_at = 0;
};

struct StaleReads {
  std::vector<TableReads> tables;  // the most read first; with several tables, the sum comes first
  Waits waits;
};

StaleReads gather(const std::vector<StepRecord>& records) {
  StaleReads all;
  std::map<std::string, std::size_t> places;
  for (const StepRecord& record : records) {
    if (!record.embedding) continue;
    const EmbeddingRecord& of = *record.embedding;
    all.waits.seconds += of.wait_seconds;
    all.waits.steps += record.step_seconds;
    if (of.wait_seconds > all.waits.longest)
      all.waits.longest = of.wait_seconds, all.waits.longest_at = record.step;
    for (const auto& [table, counts] : of.staleness) {
      const auto [place, is_new] = places.emplace(table, all.tables.size());
      if (is_new) all.tables.push_back({.table = table});
      all.tables[place->second].add(counts);
    }
  }
  std::ranges::sort(all.tables, [](const TableReads& a, const TableReads& b) {
    return a.reads() != b.reads() ? a.reads() > b.reads() : a.table < b.table;
  });
  if (all.tables.size() > 1) {
    TableReads sum{.table = "all tables"};
    for (const TableReads& table : all.tables) sum.add(table.lacked);
    all.tables.insert(all.tables.begin(), std::move(sum));
  }
  return all;
}

std::string class_name(std::size_t of) {
  const std::size_t first = of == 0 ? 0 : kClassEnds[of - 1];
  if (first + 1 == kClassEnds[of]) return std::to_string(first);
  return std::to_string(first) + " to " + std::to_string(kClassEnds[of] - 1);
}

std::vector<std::int64_t> by_class(const TableReads& table) {
  std::vector<std::int64_t> counts(kClasses);
  for (std::size_t i = 0; i < table.lacked.size(); ++i) {
    const auto end = std::ranges::upper_bound(kClassEnds, i);
    counts[std::min<std::size_t>(static_cast<std::size_t>(end - kClassEnds), kClasses - 1)] +=
        table.lacked[i];
  }
  return counts;
}

BarRow bar_of(const TableReads& table) {
  const std::vector<std::int64_t> counts = by_class(table);
  const auto reads = static_cast<double>(std::max<std::int64_t>(1, table.reads()));
  Bar bar;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const double share = static_cast<double>(counts[i]) / reads;
    bar.segments.push_back({"kind" + std::to_string(i),
                            "lacked " + class_name(i) + ": " +
                                format_count(static_cast<double>(counts[i])) + " rows, " +
                                percent(share),
                            rounded(100 * share, 3)});
  }
  return {.name = table.table,
          .bars = {std::move(bar)},
          .figures = {{format_double(table.mean(), 2), "lacked on average"}}};
}

// The numbers of the bars; empty classes are omitted.
Table numbers(const std::vector<TableReads>& tables) {
  std::vector<std::vector<std::int64_t>> counts;
  std::vector<bool> shown(kClasses, false);
  for (const TableReads& table : tables) {
    counts.push_back(by_class(table));
    for (std::size_t i = 0; i < kClasses; ++i) shown[i] = shown[i] || counts.back()[i] > 0;
  }
  Table listed{.columns = {"rows read", "in all"}};
  for (std::size_t i = 0; i < kClasses; ++i)
    if (shown[i]) listed.columns.push_back("lacked " + class_name(i));
  for (std::size_t t = 0; t < tables.size(); ++t) {
    listed.rows.push_back({tables[t].table, std::to_string(tables[t].reads())});
    for (std::size_t i = 0; i < kClasses; ++i)
      if (shown[i]) listed.rows.back().push_back(std::to_string(counts[t][i]));
  }
  return listed;
}

std::string waits_text(const Waits& waits) {
  if (waits.seconds <= 0) return "No step waited for rows.";
  return "Waits for rows took " + percent(waits.steps > 0 ? waits.seconds / waits.steps : 0) +
         " of the time of the steps, " + format_seconds(waits.seconds) +
         " in all; the longest was " + format_seconds(waits.longest) + ", in step " +
         std::to_string(waits.longest_at) + ".";
}

}  // namespace

std::optional<Card> staleness_card(const ReportInput& input) {
  const StaleReads all = gather(input.records);
  if (all.tables.empty()) return {};
  Card card{.id = "staleness",
            .title = "Staleness",
            .caption =
                "How many updates the rows lacked that the steps have read; a table with "
                "staleness n may lack n - 1. " +
                waits_text(all.waits),
            .table = numbers(all.tables)};
  const std::vector<std::int64_t> sums = by_class(all.tables.front());
  for (std::size_t i = 0; i < kClasses; ++i)
    if (sums[i] > 0) card.legend.push_back({"kind" + std::to_string(i), "lacked " + class_name(i)});
  for (std::size_t t = 0; t < std::min(all.tables.size(), kMostBars); ++t)
    card.bars.push_back(bar_of(all.tables[t]));
  return card;
}

}  // namespace strata
