// The page is that of a report (report/page.h): a card for each claim, and one for what Strata
// would do on its machines.
#include <algorithm>
#include <cmath>

#include "strata/base/units.h"
#include "strata/claim/claim_text.h"
#include "strata/report/page.h"

namespace strata {
namespace {

constexpr double kBarShare = 45;  // of the width, for the larger of two numbers

std::string shown(const ClaimRow& row, double value) {
  return format_double(value, row.decimals) + (row.unit.empty() ? "" : " " + row.unit);
}

Table rows_table(const Claim& claim) {
  Table table{.columns = {"", "published", "reproduced", "difference", "tolerance", "verdict"}};
  for (const ClaimRow& row : claim.rows) {
    const Verdict verdict = verdict_of(row);
    const double share =
        std::max(row.tolerance.relative,
                 row.published == 0 ? 0 : row.tolerance.absolute / std::abs(row.published));
    std::string words = name_of(verdict);
    if (verdict == Verdict::kExplained) words += ": " + row.explanation.text;
    table.rows.push_back({row.what, shown(row, row.published), shown(row, row.reproduced),
                          difference_text(row), percent(share), words});
  }
  return table;
}

// The plans whose paper states its utilisation.
std::vector<BarRow> bars_of(const Claim& claim) {
  std::vector<BarRow> bars;
  double largest = 0;
  for (const StrataPlan& plan : claim.plans)
    largest = std::max({largest, plan.utilisation, plan.published_utilisation});
  for (const StrataPlan& plan : claim.plans) {
    if (plan.published_utilisation == 0) continue;
    const auto bar = [&](const char* style, const char* name, double share) {
      return Bar{.style = "equal",
                 .segments = {{.style = style,
                               .title = std::string(name) + ": " + percent(share),
                               .percent = 2 * kBarShare * share / largest}}};
    };
    bars.push_back({.name = plan.model.substr(0, plan.model.find(',')),
                    .bars = {bar("other", "published", plan.published_utilisation),
                             bar("measured", "Strata, simulated", plan.utilisation)},
                    .figures = {{percent(plan.published_utilisation), "published"},
                                {percent(plan.utilisation), "Strata"}}});
  }
  return bars;
}

Card claim_card(const Claim& claim) {
  const VerdictCounts counts = verdicts_of(claim);
  return {.id = claim.name,
          .title = claim.system + ": " + claim.name,
          .caption = claim.statement,
          .note = "Source: " + claim.source + ". " + claim.method + " " +
                  std::to_string(counts.reproduced) + " rows reproduced, " +
                  std::to_string(counts.explained) + " explained, " +
                  std::to_string(counts.missed) + " missed.",
          .table = rows_table(claim)};
}

Card strata_card(const Claim& claim) {
  Card card{.id = claim.name + "-strata",
            .title = claim.name + ": Strata on the same machines",
            .caption = claim.strata};
  card.bars = bars_of(claim);
  if (!card.bars.empty())
    card.legend = {{"other", "published, share of the data sheet's peak"},
                   {"measured", "Strata, simulated"}};
  if (!claim.plans.empty()) {
    card.table.columns = {"", "mesh", "schedule", "a rank", "of", "step", "of peak"};
    for (const StrataPlan& plan : claim.plans)
      card.table.rows.push_back({plan.model, plan.mesh, plan.schedule,
                                 format_double(plan.bytes / 1e9, 1) + " GB",
                                 format_double(plan.device_bytes / 1e9, 1) + " GB",
                                 format_seconds(plan.step_seconds), percent(plan.utilisation)});
    for (const StrataFigure& figure : claim.figures)
      card.table.rows.push_back({figure.what, figure.value, "", "", "", "", ""});
    return card;
  }
  card.table.columns = {"", "Strata"};
  for (const StrataFigure& figure : claim.figures)
    card.table.rows.push_back({figure.what, figure.value});
  return card;
}

}  // namespace

std::string claims_page(const std::vector<Claim>& claims) {
  VerdictCounts all;
  Page page{.title = "Published claims, rebuilt"};
  for (const Claim& claim : claims) {
    all += verdicts_of(claim);
    page.cards.push_back(claim_card(claim));
    page.cards.push_back(strata_card(claim));
  }
  page.facts = {{"command", "strata claim"},
                {"seconds", "simulated, from published rates; nothing was run on these machines"},
                {"explained", "outside of its tolerance, with the reason and within its bound"}};
  page.tiles = {{"claims", std::to_string(claims.size()), "papers and tables"},
                {"reproduced", std::to_string(all.reproduced), "rows within their tolerance"},
                {"explained", std::to_string(all.explained), "rows with a stated reason"},
                {"missed", std::to_string(all.missed), "rows"}};
  return to_html(page);
}

}  // namespace strata
