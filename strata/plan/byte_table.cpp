#include "strata/plan/byte_table.h"

#include <algorithm>
#include <vector>

#include "strata/base/units.h"
#include "strata/plan/text_table.h"

namespace strata {
namespace {

// The unit in which the greatest number has one to four digits.
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
  std::string operator()(std::int64_t count) const {
    return format_double(static_cast<double>(count) / bytes, bytes == 1 ? 0 : 1);
  }
};

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
    if (device_bytes > 0) {
      const double share =
          100.0 * static_cast<double>(ledger[r].peak_bytes) / static_cast<double>(device_bytes);
      row.push_back(format_double(share, 0) + " %");
    }
    table.add_row(row);
  }
  return table.text();
}

}  // namespace strata
