// Lists what the tables of a recommender hold at the end of a run.
#include <algorithm>
#include <string>
#include <vector>

#include "strata/base/units.h"
#include "strata/report/page.h"

namespace strata {
namespace {

std::string counted(std::int64_t count) { return format_count(static_cast<double>(count)); }

std::vector<std::string> row_of_table(const std::string& name, const EmbeddingSize& size,
                                      std::int64_t all_bytes) {
  const std::int64_t bytes = size.bytes + size.cold_bytes;
  return {
      name,
      counted(size.rows),
      format_bytes(size.bytes),
      counted(size.cold_rows),
      format_bytes(size.cold_bytes),
      counted(size.parameters),
      all_bytes > 0 ? percent(static_cast<double>(bytes) / static_cast<double>(all_bytes)) : ""};
}

}  // namespace

std::optional<Card> embeddings_card(const ReportInput& input) {
  if (input.embeddings.empty()) return {};
  const EmbeddingSize all = sum_of(input.embeddings);
  const std::int64_t all_bytes = all.bytes + all.cold_bytes;
  std::vector<TableSize> tables = input.embeddings;
  const auto bytes_of = [](const TableSize& table) {
    return table.size.bytes + table.size.cold_bytes;
  };
  std::ranges::sort(tables, [&](const TableSize& a, const TableSize& b) {
    return bytes_of(a) != bytes_of(b) ? bytes_of(a) > bytes_of(b) : a.table < b.table;
  });
  Table listed{.columns = {"table", "rows in memory", "bytes in memory", "rows on disk",
                           "bytes on disk", "parameters", "of all bytes"}};
  if (tables.size() > 1) listed.rows.push_back(row_of_table("all tables", all, all_bytes));
  for (const TableSize& table : tables)
    listed.rows.push_back(row_of_table(table.table, table.size, all_bytes));
  return Card{.id = "embeddings",
              .title = "Embeddings",
              .caption =
                  "What the tables held at the end, the largest first. Bytes in memory are "
                  "those of rows, states of their optimizer and index" +
                  std::string(input.rows_are_local ? ", in the process of rank 0"
                                                   : ", on the servers of rows") +
                  "; bytes on disk are those of rows before the database packs them.",
              .table = std::move(listed)};
}

}  // namespace strata
