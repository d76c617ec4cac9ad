/// Describes the page of a report as typed parts, which become the JSON that assets/*.js draws.
///
/// The parts hold numbers and texts only: assets/*.js decides where they are drawn and how large,
/// assets/report.css decides their colours. A `style` is a class of that style sheet.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/report/report.h"

namespace strata {

struct LegendKey {
  std::string style, words;
};

/// One event on a timeline; seconds since the begin of the step.
struct TimelineSpan {
  std::string style, title, number;  ///< `number`: the text in the span
  double begin = 0, end = 0;
};

struct TimelineSide {
  std::string name;  ///< "predicted", "measured"
  std::vector<TimelineSpan> spans{};
};

/// One row: the actions of a rank on one side, or a track of the rank with both sides.
struct TimelineRow {
  std::string name;
  bool is_track = false;
  std::vector<TimelineSide> sides{};
};

struct TimelineRank {
  std::string name;
  std::vector<TimelineRow> rows{};
};

/// The end of the step on one side.
struct TimelineEnd {
  std::string name, words;
  double at = 0;
};

struct Timeline {
  double seconds = 0;  ///< length of the axis
  std::vector<TimelineRank> ranks{};
  std::vector<TimelineEnd> ends{};
};

using CurvePoints = std::vector<std::pair<std::int64_t, double>>;  ///< step and value

/// The cursor shows curves with a name; it stops at the steps of the first one.
struct Curve {
  std::string style, name;
  bool dots = false;
  CurvePoints points{};
};

/// A part of a bar; `percent` is its length in percent of the full width.
struct BarSegment {
  std::string style, title;
  double percent = 0;
};

struct Bar {
  std::string style;
  std::vector<BarSegment> segments{};
};

/// A number with its meaning, such as "12.5 %" and "idle, measured".
struct Figure {
  std::string value, note;
};

struct BarRow {
  std::string name;
  std::vector<Bar> bars{};
  std::vector<Figure> figures{};
  double budget_percent = 0;  ///< where the line of the budget crosses the bars; 0: no line
};

/// The first cell of a row names it; the first column may have no name.
struct Table {
  std::vector<std::string> columns{};
  std::vector<std::vector<std::string>> rows{};
};

struct Quote {
  std::string prompt, sample;
};

/// A section of the page. Empty parts are omitted from the JSON.
struct Card {
  std::string id, title, caption;
  std::vector<LegendKey> legend{};  ///< of bars; others have theirs from their marks
  std::optional<Timeline> timeline{};
  std::vector<Curve> curves{};
  std::vector<BarRow> bars{};
  std::string note{};
  Table table{};
  Quote quote{};
};

/// A headline number. The unit follows the first space of the value.
struct Tile {
  std::string name, value, note;
};

struct Page {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts{};
  std::vector<Tile> tiles{};
  std::vector<Card> cards{};
  std::vector<std::pair<std::string, std::string>> appendices{};
};

void to_json(nlohmann::json& json, const Page& page);
void to_json(nlohmann::json& json, const Card& card);

Page page_of(const ReportInput& input);  ///< report.cpp

/// JSON text that a <script> element can contain: every "<" is escaped, so no text ends the element
/// or opens a comment. Bytes that are not UTF-8 become U+FFFD, because a byte-level model may write
/// any bytes.
std::string script_json(const Page& page);

/// A file of HTML that draws the page; it needs no other file.
std::string to_html(const Page& page);

double rounded(double value, int decimals);
std::string percent(double ratio, int decimals = 1);  ///< "12.5 %"
std::string signed_percent(double ratio);             ///< "+2.1 %" with its sign

// Sections; each is none without its data.
std::optional<Card> timeline_card(const ReportInput& input);    ///< timeline.cpp
std::optional<Card> idle_card(const ReportInput& input);        ///< rank_bars.cpp
std::optional<Card> device_card(const ReportInput& input);      ///< device_time.cpp
std::optional<Card> memory_card(const ReportInput& input);      ///< rank_bars.cpp
std::optional<Card> loss_curve_card(const ReportInput& input);  ///< loss_curve.cpp
std::optional<Card> auc_curve_card(const ReportInput& input);   ///< loss_curve.cpp
std::optional<Card> embeddings_card(const ReportInput& input);  ///< embeddings.cpp
std::optional<Card> staleness_card(const ReportInput& input);   ///< staleness.cpp

// The files of assets/, which the build embeds; the scripts are joined.
extern const std::string_view kReportStyleSheet;
extern const std::string_view kReportScript;

}  // namespace strata
