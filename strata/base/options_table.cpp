#include <algorithm>
#include <array>

#include "strata/base/option_value.h"
#include "strata/base/options.h"

namespace strata {
namespace {

constexpr std::size_t kColumns = 4;
using Row = std::array<std::string, kColumns>;

std::string print(const std::vector<Row>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < kColumns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < kColumns; ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    table += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return table;
}

}  // namespace

std::string OptionSet::to_table() const {
  std::vector<std::string> sections;
  for (const Field& field : fields_) {
    const std::string section = section_of(field.path);
    if (std::ranges::find(sections, section) == sections.end()) sections.push_back(section);
  }
  std::vector<Row> rows = {{"field", "default", "unit", "what it does"}};
  for (const std::string& section : sections) {
    rows.push_back({});
    for (const Field& field : fields_) {
      if (section_of(field.path) != section) continue;
      const std::string limits = write_limits(field.target, field.info);
      rows.push_back({field.path, field.default_text.empty() ? "\"\"" : field.default_text,
                      field.info.unit,
                      field.info.help + (limits.empty() ? "" : " [" + limits + "]")});
    }
  }
  return print(rows);
}

}  // namespace strata
