/// Aligns cells of text into columns.
#pragma once

#include <string>
#include <vector>

namespace strata {

class TextTable {
 public:
  /// One character per column: 'l' left, 'r' right.
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}

  void add_row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  /// Puts two spaces between columns and none at the end of a line; every line ends with a line
  /// break.
  std::string text() const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace strata
