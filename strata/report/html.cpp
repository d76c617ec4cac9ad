#include "strata/report/html.h"

#include <algorithm>
#include <cmath>

#include "strata/base/units.h"
#include "strata/base/utf8.h"

namespace strata {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string_view escaped_ascii(std::string_view character) {
  switch (character[0]) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\n':
    case '\t':
      return character;
    default:
      return character[0] < ' ' || character[0] == 0x7F ? kReplacement : character;
  }
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const std::size_t length = character_bytes(text);
    if (length == 0) {
      escaped += kReplacement;
    } else if (length == 1) {
      escaped += escaped_ascii(text.substr(0, 1));
    } else {
      escaped += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return escaped;
}

std::string coordinate(double value) {
  return format_double_exactly(std::round(value * 100) / 100);
}

std::string percent(double ratio, int decimals) {
  return format_double(100 * ratio, decimals) + " %";
}

std::string signed_percent(double ratio) {
  const std::string amount = format_double(std::fabs(100 * ratio), 1);
  const char* const sign = amount == "0.0" ? "" : ratio < 0 ? "\u2212" : "+";
  return sign + amount + "\u00a0%";
}

std::vector<double> axis_ticks(double low, double high, int count) {
  if (!(high > low)) return {low};
  const double raw = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= raw * (1 - 1e-9)) step = factor * power;
  }
  std::vector<double> values;
  const double first = std::ceil(low / step - 1e-9);
  for (double i = first; i * step <= high + 1e-9 * step; ++i) values.push_back(i * step);
  return values;
}

int tick_decimals(const std::vector<double>& ticks) {
  if (ticks.size() < 2) return 2;
  return std::max(0, static_cast<int>(-std::floor(std::log10(ticks[1] - ticks[0]) + 1e-9)));
}

std::string table_html(const std::vector<std::string>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& column : columns)
    html += column.empty() ? "<td></td>" : "<th scope=\"col\">" + escape_html(column) + "</th>";
  html += "</tr></thead><tbody>";
  for (const std::vector<std::string>& cells : rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      html += i == 0 ? "<th scope=\"row\">" + escape_html(cells[i]) + "</th>"
                     : "<td data-name=\"" + escape_html(columns[i]) + "\">" +
                           escape_html(cells[i]) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table></div>";
}

}  // namespace strata
