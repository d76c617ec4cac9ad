/// Builds the parts of the HTML report: text and numbers as HTML, and whole sections.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "strata/report/report.h"

namespace strata {

/// Escapes markup. Bytes that are not UTF-8, and control characters except tab and line break,
/// become U+FFFD, because a byte-level model may write any bytes.
std::string escape_html(std::string_view text);

/// At most two decimals, for coordinates.
std::string coordinate(double value);

std::string percent(double ratio, int decimals = 1);  ///< "12.5 %"

/// "+2.1 %" with its sign.
std::string signed_percent(double ratio);

/// Round values from `low` to `high`, about `count` of them, in steps of 1, 2 or 5 times a power
/// of 10.
std::vector<double> axis_ticks(double low, double high, int count);

/// Decimals that distinguish adjacent ticks.
int tick_decimals(const std::vector<double>& ticks);

/// A table. The first cell of a row names it; the first column may have no name. Each cell stores
/// its column's name for narrow screens.
std::string table_html(const std::vector<std::string>& columns,
                       const std::vector<std::vector<std::string>>& rows);

// Sections; each is "" without its data.
std::string timeline_section(const ReportInput& input);    ///< timeline.cpp
std::string idle_section(const ReportInput& input);        ///< rank_bars.cpp
std::string device_section(const ReportInput& input);      ///< device_time.cpp
std::string memory_section(const ReportInput& input);      ///< rank_bars.cpp
std::string loss_curve_section(const ReportInput& input);  ///< loss_curve.cpp
std::string auc_curve_section(const ReportInput& input);   ///< loss_curve.cpp
std::string embeddings_section(const ReportInput& input);  ///< embeddings.cpp
std::string staleness_section(const ReportInput& input);   ///< staleness.cpp

// The files of assets/, which the build embeds.
extern const std::string_view kReportStyleSheet;
extern const std::string_view kReportScript;

}  // namespace strata
