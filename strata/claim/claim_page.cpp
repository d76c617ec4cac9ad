// The page is that of a report (report/page.h): a card for each claim, and one for what Strata
// would do on its machines.
#include <algorithm>
#include <cmath>

#include "strata/base/units.h"
#include "strata/claim/claim_text.h"
#include "strata/report/page.h"

namespace strata {
namespace {

constexpr double kLongestBar = 90;  // percent of the width
constexpr const char *kPublishedStyle = "use0", *kStrataStyle = "measured";

std::string shown(const ClaimRow& row, double value) {
  return format_double(value, row.decimals) + (row.unit.empty() ? "" : " " + row.unit);
}

std::string tolerance_text(const ClaimRow& row) {
  const Tolerance& tolerance = row.tolerance;
  if (tolerance.absolute > tolerance.relative * std::abs(row.published))
    return format_double(tolerance.absolute, row.decimals + 1);
  return percent(tolerance.relative);
}

// Each explanation once, with the letter that names it in the table.
class Explanations {
 public:
  std::string letter(const std::string& text) {
    const auto found = std::ranges::find(texts_, text);
    const auto place = found - texts_.begin();
    if (found == texts_.end()) texts_.push_back(text);
    return {static_cast<char>('a' + place)};
  }

  std::string text() const {
    std::string all;
    for (std::size_t i = 0; i < texts_.size(); ++i)
      all += std::string(i > 0 ? "\n" : "") + static_cast<char>('a' + i) + "  " + texts_[i];
    return all;
  }

 private:
  std::vector<std::string> texts_;
};

Table rows_table(const Claim& claim, Explanations& explanations) {
  Table table{.columns = {"", "published", "reproduced", "difference", "tolerance", "verdict"}};
  for (const ClaimRow& row : claim.rows) {
    const Verdict verdict = verdict_of(row);
    std::string words = name_of(verdict);
    if (verdict == Verdict::kExplained) words += ", " + explanations.letter(row.explanation.text);
    table.rows.push_back({row.what, shown(row, row.published), shown(row, row.reproduced),
                          difference_text(row), tolerance_text(row), words});
  }
  return table;
}

// Two numbers as bars, and as figures beside them.
struct Pair {
  std::string name;
  double published = 0, ours = 0;
  std::string published_text, ours_text;
};

std::vector<BarRow> bars_of(const std::vector<Pair>& pairs, const char* ours) {
  double largest = 0;
  for (const Pair& pair : pairs) largest = std::max({largest, pair.published, pair.ours});
  std::vector<BarRow> bars;
  for (const Pair& pair : pairs) {
    const auto bar = [&](const char* style, double value, const std::string& title) {
      return Bar{.style = "equal",
                 .segments = {{.style = style,
                               .title = title,
                               .percent = rounded(kLongestBar * value / largest, 2)}}};
    };
    bars.push_back(
        {.name = pair.name,
         .bars = {bar(kPublishedStyle, pair.published, "published\n" + pair.published_text),
                  bar(kStrataStyle, pair.ours, ours + ("\n" + pair.ours_text))},
         .figures = {{pair.published_text, "published"}, {pair.ours_text, ours}}});
  }
  return bars;
}

void draw(Card& card, const std::vector<Pair>& pairs, const char* ours) {
  if (pairs.empty()) return;
  card.bars = bars_of(pairs, ours);
  card.legend = {{kPublishedStyle, "published"}, {kStrataStyle, ours}};
}

Card claim_card(const Claim& claim) {
  const VerdictCounts counts = verdicts_of(claim);
  Explanations explanations;
  Card card{.id = claim.name,
            .title = claim.name == claim.system ? claim.name : claim.name + ": " + claim.system,
            .caption = claim.statement,
            .note = "Source: " + claim.source + ". " + claim.method + " " +
                    std::to_string(counts.reproduced) + " rows reproduced, " +
                    std::to_string(counts.explained) + " explained, " +
                    std::to_string(counts.missed) + " missed.",
            .table = rows_table(claim, explanations)};
  card.quote = {.prompt = "Explained. ", .sample = explanations.text()};
  std::vector<Pair> pairs;
  for (const ClaimRow& row : claim.rows)
    if (row.unit == claim.pictured_unit && !row.unit.empty())
      pairs.push_back({row.what, row.published, row.reproduced, shown(row, row.published),
                       shown(row, row.reproduced)});
  draw(card, pairs, "reproduced");
  return card;
}

std::vector<Pair> utilisations(const Claim& claim) {
  std::vector<Pair> pairs;
  for (const StrataPlan& plan : claim.plans)
    if (plan.published_utilisation > 0)
      pairs.push_back({plan.model.substr(0, plan.model.find(',')), plan.published_utilisation,
                       plan.utilisation, percent(plan.published_utilisation),
                       percent(plan.utilisation)});
  return pairs;
}

Card strata_card(const Claim& claim) {
  Card card{.id = claim.name + "-strata",
            .title = claim.name + ": Strata on the same machines",
            .caption = claim.strata};
  draw(card, utilisations(claim), "Strata, simulated");
  if (!card.bars.empty())
    card.note = "Bars: model operations as a share of the data sheet's peak, without recomputes.";
  if (!claim.plans.empty()) {
    card.table.columns = {"", "mesh", "schedule", "a rank", "step", "of peak"};
    for (const StrataPlan& plan : claim.plans)
      card.table.rows.push_back({plan.model, plan.mesh, plan.schedule,
                                 format_double(plan.bytes / 1e9, 1) + " of " +
                                     format_double(plan.device_bytes / 1e9, 1) + " GB",
                                 format_seconds(plan.step_seconds), percent(plan.utilisation)});
    for (const StrataFigure& figure : claim.figures)
      card.table.rows.push_back({figure.what, figure.value, "", "", "", ""});
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
