#include "strata/run/inspection_text.h"

#include "strata/base/text_table.h"

namespace strata {

std::string tables_text(const std::vector<ReportTable>& tables) {
  std::string text;
  for (const ReportTable& table : tables) {
    TextTable lines("l" + std::string(table.columns.size() - 1, 'r'));
    lines.add_row(table.columns);
    for (const std::vector<std::string>& row : table.rows) lines.add_row(row);
    text += "\n" + table.title + ": " + table.note + "\n" + lines.text();
  }
  return text;
}

}  // namespace strata
