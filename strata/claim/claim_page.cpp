// The page is that of a report (report/page.h): a card for each claim, and one for what Strata
// would do on its machines.
#include <algorithm>
#include <cmath>
#include <set>

#include "strata/base/units.h"
#include "strata/claim/claim_text.h"
#include "strata/report/page.h"

namespace strata {
namespace {

constexpr double kLongestBar = 90;  // percent of the width
constexpr const char *kPublishedStyle = "use0", *kStrataStyle = "measured",
                     *kTheirMeshStyle = "use4";

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
    if (verdict == Verdict::kExplained || verdict == Verdict::kNotExplained)
      words += ", " + explanations.letter(row.explanation.text);
    table.rows.push_back({row.what, shown(row, row.published), shown(row, row.reproduced),
                          difference_text(row), tolerance_text(row), words});
  }
  return table;
}

// A number as a bar, and as a figure beside it.
struct Shown {
  const char* style;
  const char* meaning;
  double value = 0;
  std::string text;
};
struct ShownRow {
  std::string name;
  std::vector<Shown> numbers;
};

std::vector<BarRow> bars_of(const std::vector<ShownRow>& rows) {
  double largest = 0;
  for (const ShownRow& row : rows)
    for (const Shown& number : row.numbers) largest = std::max(largest, number.value);
  std::vector<BarRow> all;
  for (const ShownRow& row : rows) {
    BarRow drawn{.name = row.name};
    for (const Shown& number : row.numbers) {
      drawn.bars.push_back(
          {.style = "equal",
           .segments = {{.style = number.style,
                         .title = number.meaning + ("\n" + number.text),
                         .percent = rounded(kLongestBar * number.value / largest, 2)}}});
      drawn.figures.push_back({number.text, number.meaning});
    }
    all.push_back(std::move(drawn));
  }
  return all;
}

void draw(Card& card, const std::vector<ShownRow>& rows) {
  if (rows.empty()) return;
  card.bars = bars_of(rows);
  std::set<std::string> named;
  for (const ShownRow& row : rows)
    for (const Shown& number : row.numbers)
      if (named.insert(number.style).second) card.legend.push_back({number.style, number.meaning});
}

Card claim_card(const Claim& claim) {
  const VerdictCounts counts = verdicts_of(claim);
  Explanations explanations;
  Card card{.id = claim.name,
            .title = claim.name == claim.system ? claim.name : claim.name + ": " + claim.system,
            .caption = claim.statement,
            .note = "Source: " + claim.source + ". " + claim.method + " " + words_of(counts) + ".",
            .table = rows_table(claim, explanations)};
  card.quote = {.prompt = "Outside of their tolerance. ", .sample = explanations.text()};
  std::vector<ShownRow> drawn;
  for (const ClaimRow& row : claim.rows)
    if (row.unit == claim.pictured_unit && !row.unit.empty())
      drawn.push_back({row.what,
                       {{kPublishedStyle, "published", row.published, shown(row, row.published)},
                        {kStrataStyle, "reproduced", row.reproduced, shown(row, row.reproduced)}}});
  draw(card, drawn);
  return card;
}

std::vector<ShownRow> utilisations(const Claim& claim) {
  std::vector<ShownRow> rows;
  for (const StrataPlan& plan : claim.plans) {
    if (plan.published_utilisation <= 0) continue;
    ShownRow row{.name = plan.model.substr(0, plan.model.find(','))};
    const auto add = [&](const char* style, const char* meaning, double share) {
      if (share > 0) row.numbers.push_back({style, meaning, share, percent(share)});
    };
    add(kPublishedStyle, "published, measured", plan.published_utilisation);
    add(kTheirMeshStyle, "published mesh, simulated", plan.their_mesh_utilisation);
    add(kStrataStyle, "Strata, simulated", plan.utilisation);
    rows.push_back(std::move(row));
  }
  return rows;
}

Card plans_card(const Claim& claim) {
  Card card{.id = claim.name + "-strata",
            .title = claim.name + ": Strata on the same machines",
            .caption = claim.strata};
  draw(card, utilisations(claim));
  if (!card.bars.empty())
    card.note = "Bars: model operations as a share of the data sheet's peak, without recomputes.";
  card.table.columns = {"", "mesh and schedule", "a rank", "step", "of peak"};
  for (const StrataPlan& plan : claim.plans)
    card.table.rows.push_back({plan.model, plan.mesh + "\n" + plan.schedule,
                               format_double(plan.bytes / 1e9, 1) + " of " +
                                   format_double(plan.device_bytes / 1e9, 1) + " GB",
                               format_seconds(plan.step_seconds), percent(plan.utilisation)});
  return card;
}

Card figures_card(const Claim& claim) {
  const bool alone = claim.plans.empty();
  Card card{.id = claim.name + (alone ? "-strata" : "-figures"),
            .title = claim.name + (alone ? ": Strata on the same machines" : ": figures of Strata"),
            .caption = alone ? claim.strata : ""};
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
    if (!claim.plans.empty()) page.cards.push_back(plans_card(claim));
    if (!claim.figures.empty()) page.cards.push_back(figures_card(claim));
  }
  page.facts = {
      {"command", "strata claim"},
      {"seconds", "simulated, from published rates; nothing was run on these machines"},
      {"consistent", "within its tolerance, but it follows from other published numbers alone"},
      {"explained", "outside of its tolerance, with the reason and within its bound"},
      {"not explained", "outside of its tolerance, within its bound; the cause is not known"}};
  page.tiles = {
      {"claims", std::to_string(claims.size()), "papers and tables"},
      {"reproduced", std::to_string(all.reproduced), "rows within their tolerance"},
      {"consistent", std::to_string(all.consistent), "rows of published arithmetic"},
      {"explained", std::to_string(all.explained), "rows with a stated reason"},
      {"not explained", std::to_string(all.not_explained), "rows whose cause is not known"},
      {"missed", std::to_string(all.missed), "rows"}};
  return to_html(page);
}

}  // namespace strata
