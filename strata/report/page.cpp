#include "strata/report/page.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "strata/base/json_text.h"
#include "strata/base/units.h"

namespace strata {
namespace {

void add(nlohmann::json& json, const char* key, const auto& part) {
  if (!part.empty()) json[key] = part;
}

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LegendKey, style, words)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelineSpan, style, title, number, begin, end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelineSide, name, spans)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelineRow, name, is_track, sides)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelineRank, name, rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelineEnd, name, words, at)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Timeline, seconds, ranks, ends)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Curve, style, name, dots, points)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BarSegment, style, title, percent)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Bar, style, segments)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Figure, value, note)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BarRow, name, bars, figures, budget_percent)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Table, columns, rows)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Quote, prompt, sample)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tile, name, value, note)

void to_json(nlohmann::json& json, const Card& card) {
  json = {{"title", card.title}, {"caption", card.caption}};
  add(json, "id", card.id);
  add(json, "legend", card.legend);
  if (card.timeline) json["timeline"] = *card.timeline;
  add(json, "curves", card.curves);
  add(json, "bars", card.bars);
  add(json, "note", card.note);
  if (!card.table.rows.empty()) json["table"] = card.table;
  if (!card.quote.sample.empty()) json["quote"] = card.quote;
}

void to_json(nlohmann::json& json, const Page& page) {
  json = {{"title", page.title},
          {"facts", page.facts},
          {"tiles", page.tiles},
          {"cards", page.cards},
          {"appendices", page.appendices}};
}

std::string script_json(const Page& page) {
  std::string safe;
  for (const char character : json_text(nlohmann::json(page)))
    character == '<' ? safe += "\\u003c" : safe += character;
  return safe;
}

std::string to_html(const Page& page) {
  return R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Strata</title>
<style>)" +
         std::string(kReportStyleSheet) + R"(</style>
</head>
<body>
<noscript>This page draws the run with its own script. Allow scripts to see it.</noscript>
<main>
<header><p class="brand"><svg width="22" height="22" viewBox="0 0 22 22" aria-hidden="true">
<path d="M11 2 21 7 11 12 1 7z"/><path d="m1 11 10 5 10-5" class="second"/>
<path d="m1 15 10 5 10-5" class="third"/></svg>Strata</p></header>
</main>
<div id="tip" role="status" hidden></div>
<script id="run" type="application/json">)" +
         script_json(page) + "</script>\n<script>" + std::string(kReportScript) +
         R"(</script>
</body>
</html>
)";
}

double rounded(double value, int decimals) {
  const double scale = std::pow(10, decimals);
  return std::round(value * scale) / scale;
}

std::string percent(double ratio, int decimals) {
  return format_double(100 * ratio, decimals) + " %";
}

std::string signed_percent(double ratio) {
  const std::string amount = format_double(std::fabs(100 * ratio), 1);
  const char* const sign = amount == "0.0" ? "" : ratio < 0 ? "\u2212" : "+";
  return sign + amount + "\u00a0%";
}

}  // namespace strata
