// Tables of bytes by rank and kind, one unit per table. Part of plan_text.h, also used by errors.
#include <algorithm>
#include <vector>

#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/plan/text/plan_text.h"

namespace strata {
namespace {

// The unit in which the largest number has one to four digits.
struct Unit {
  const char* name = "B";
  double bytes = 1;

  explicit Unit(std::int64_t greatest) {
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
      if (static_cast<double>(greatest) < 1024 * bytes) break;
      name = larger;
      bytes *= 1024;
    }
  }
  // A number that would be printed as zero has a unit of its own: "64 B", "12.00 KiB".
  std::string operator()(std::int64_t count) const {
    const double number = static_cast<double>(count) / bytes;
    return count != 0 && number < 0.05 ? format_bytes(count)
                                       : format_double(number, bytes == 1 ? 0 : 1);
  }
};

std::string share_text(std::int64_t bytes, std::int64_t budget) {
  const double percent = 100.0 * static_cast<double>(bytes) / static_cast<double>(budget);
  return format_double(percent, 0) + " %";
}

std::vector<ByteKind> used_kinds(const Ledger& ledger) {
  std::vector<ByteKind> kinds;
  for (int k = 0; k < kNumByteKinds; ++k) {
    const auto kind = static_cast<ByteKind>(k);
    const bool used = std::any_of(ledger.begin(), ledger.end(),
                                  [&](const RankLedger& rank) { return rank.at_peak[kind] != 0; });
    if (used) kinds.push_back(kind);
  }
  return kinds;
}

}  // namespace

std::string byte_table(const Ledger& ledger, std::int64_t device_bytes) {
  const std::vector<ByteKind> kinds = used_kinds(ledger);
  const Unit in_unit(peak_bytes(ledger));
  std::vector<std::string> head{std::string(in_unit.name) + " on rank"};
  for (const ByteKind kind : kinds) head.push_back(name_of(kind));
  head.push_back("peak");
  if (device_bytes > 0) head.push_back("budget");
  TextTable table(std::string(head.size(), 'r'));
  table.add_row(head);
  for (std::size_t r = 0; r < ledger.size(); ++r) {
    std::vector<std::string> row{std::to_string(r)};
    for (const ByteKind kind : kinds) row.push_back(in_unit(ledger[r].at_peak[kind]));
    row.push_back(in_unit(ledger[r].peak_bytes));
    if (device_bytes > 0) row.push_back(share_text(ledger[r].peak_bytes, device_bytes));
    table.add_row(row);
  }
  return table.text();
}

namespace {

// A column of bytes in a table by rank.
struct Column {
  std::string name;
  std::vector<std::int64_t> bytes;
};

// Omits columns that are empty on every rank, except the last column, the sum with its share of the
// budget.
std::string rank_table(const std::string& tier, const std::vector<Column>& columns,
                       std::int64_t budget) {
  const std::vector<std::int64_t>& sums = columns.back().bytes;
  const Unit in_unit(*std::ranges::max_element(sums));
  std::vector<const Column*> shown;
  for (const Column& column : columns)
    if (&column == &columns.back() || std::ranges::any_of(column.bytes, [](auto b) { return b; }))
      shown.push_back(&column);
  std::vector<std::string> head{std::string(in_unit.name) + " on " + tier + " of rank"};
  for (const Column* column : shown) head.push_back(column->name);
  if (budget > 0) head.emplace_back("budget");
  TextTable table(std::string(head.size(), 'r'));
  table.add_row(head);
  for (std::size_t r = 0; r < sums.size(); ++r) {
    std::vector<std::string> row{std::to_string(r)};
    for (const Column* column : shown) row.push_back(in_unit(column->bytes[r]));
    if (budget > 0) row.push_back(share_text(sums[r], budget));
    table.add_row(row);
  }
  return table.text();
}

template <typename F>
Column column_of(const std::string& name, const Ledger& ledger, F bytes) {
  Column column{.name = name, .bytes = {}};
  for (const RankLedger& rank : ledger) column.bytes.push_back(bytes(rank));
  return column;
}

}  // namespace

std::string host_table(const Ledger& ledger, std::int64_t budget) {
  if (host_bytes(ledger) == 0) return "";
  return rank_table(
      "host",
      {column_of("weights", ledger, [](const RankLedger& r) { return r.host.weights; }),
       column_of("gradients", ledger, [](const RankLedger& r) { return r.host.gradients; }),
       column_of("states", ledger, [](const RankLedger& r) { return r.host.states; }),
       column_of("activations", ledger, [](const RankLedger& r) { return r.host.activations; }),
       column_of("staging", ledger, [](const RankLedger& r) { return r.host.staging; }),
       column_of("pages", ledger, [](const RankLedger& r) { return r.host.pages; }),
       column_of("all", ledger, [](const RankLedger& r) { return r.host.total(); })},
      budget);
}

std::string disk_table(const Ledger& ledger, std::int64_t budget) {
  if (disk_bytes(ledger) == 0) return "";
  return rank_table(
      "disk",
      {column_of("weights", ledger, [](const RankLedger& r) { return r.on_disk.weights; }),
       column_of("gradients", ledger, [](const RankLedger& r) { return r.on_disk.gradients; }),
       column_of("states", ledger, [](const RankLedger& r) { return r.on_disk.states; }),
       column_of("pages", ledger, [](const RankLedger& r) { return r.on_disk.pages; }),
       column_of("files", ledger, [](const RankLedger& r) { return r.disk_bytes; })},
      budget);
}

}  // namespace strata
