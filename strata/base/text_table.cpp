#include "strata/base/text_table.h"

#include <algorithm>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Counts the UTF-8 characters, not the bytes.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string TextTable::text() const {
  std::vector<std::size_t> widths(alignment_.size());
  for (const auto& row : rows_) {
    STRATA_CHECK_EQ(row.size(), alignment_.size(), "plan.text_table");
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - width_of(row[c]), ' ');
      line += c == 0 ? "" : "  ";
      line += alignment_[c] == 'r' ? padding + row[c] : row[c] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace strata
