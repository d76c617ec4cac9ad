#include "strata/claim/claim_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "strata/base/json_text.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/claim/claims.h"

namespace strata {
namespace {

std::string numbered(const ClaimRow& row, double value) {
  return format_double(value, row.decimals);
}

std::string share_text(double share) {
  return share > 0 ? format_double(100 * share, 1) + " %" : "-";
}

std::string gigabytes(double bytes) { return format_double(bytes / 1e9, 1) + " GB"; }

std::string rows_text(const Claim& claim) {
  TextTable table("lrrlrl");
  table.add_row({"", "published", "reproduced", "", "difference", ""});
  for (const ClaimRow& row : claim.rows)
    table.add_row({row.what, numbered(row, row.published), numbered(row, row.reproduced), row.unit,
                   difference_text(row), name_of(verdict_of(row))});
  return table.text();
}

// Each sentence once, with the rows that it explains.
std::string explanations_text(const Claim& claim) {
  std::vector<std::string> said;
  std::string text;
  for (const ClaimRow& row : claim.rows) {
    const Verdict verdict = verdict_of(row);
    if (verdict != Verdict::kExplained && verdict != Verdict::kNotExplained) continue;
    const std::string& why = row.explanation.text;
    if (std::ranges::find(said, why) != said.end()) continue;
    said.push_back(why);
    text += std::string("  ") + name_of(verdict) + ": " + why + "\n";
  }
  return text;
}

std::string plans_text(const Claim& claim) {
  if (claim.plans.empty()) return "";
  TextTable table("lllrrrrr");
  table.add_row(
      {"", "mesh", "schedule", "a rank", "step", "of peak", "published mesh", "published"});
  for (const StrataPlan& plan : claim.plans)
    table.add_row({plan.model, plan.mesh, plan.schedule, gigabytes(plan.bytes),
                   format_seconds(plan.step_seconds), share_text(plan.utilisation),
                   share_text(plan.their_mesh_utilisation),
                   share_text(plan.published_utilisation)});
  return table.text();
}

std::string figures_text(const Claim& claim) {
  TextTable table("lr");
  for (const StrataFigure& figure : claim.figures) table.add_row({figure.what, figure.value});
  return table.text();
}

void to_json(nlohmann::json& json, const ClaimRow& row) {
  json = {
      {"what", row.what},
      {"unit", row.unit},
      {"published", row.published},
      {"reproduced", row.reproduced},
      {"difference", difference_of(row)},
      {"tolerance", {{"absolute", row.tolerance.absolute}, {"relative", row.tolerance.relative}}},
      {"verdict", name_of(verdict_of(row))}};
  if (!row.explanation.text.empty()) json["explanation"] = row.explanation.text;
}

}  // namespace

std::string difference_text(const ClaimRow& row) {
  const double difference = difference_of(row);
  const bool share = row.published != 0;
  const std::string text = format_double(std::abs(share ? 100 * difference : difference), 1);
  const char* sign = text == "0.0" ? "" : difference < 0 ? "-" : "+";
  return sign + text + (share ? " %" : "");
}

std::string claim_list() {
  TextTable table("ll");
  for (const ClaimEntry& entry : claim_entries()) table.add_row({entry.name, entry.headline});
  return table.text();
}

std::string text_of(const Claim& claim) {
  const VerdictCounts counts = verdicts_of(claim);
  std::string text = claim.name + ": " + claim.system + "\n" + claim.statement + "\nsource  " +
                     claim.source + "\nmethod  " + claim.method + "\n\n" + rows_text(claim) +
                     explanations_text(claim);
  text += "\n" + words_of(counts) + "\n";
  text += "\nStrata on the same machines\n" + claim.strata + "\n";
  if (!claim.plans.empty())
    text +=
        "\nOf peak: simulated. Published mesh: the paper's mesh and kernels in the same "
        "simulator. Published: measured.\n\n" +
        plans_text(claim);
  if (!claim.figures.empty()) text += "\n" + figures_text(claim);
  return text;
}

std::string summary_of(const std::vector<Claim>& claims) {
  VerdictCounts all;
  for (const Claim& claim : claims) all += verdicts_of(claim);
  return std::to_string(claims.size()) + (claims.size() == 1 ? " claim: " : " claims: ") +
         words_of(all);
}

void to_json(nlohmann::json& json, const Claim& claim) {
  json = {{"name", claim.name},
          {"system", claim.system},
          {"statement", claim.statement},
          {"source", claim.source},
          {"method", claim.method},
          {"strata", claim.strata},
          {"rows", nlohmann::json::array()}};
  for (const ClaimRow& row : claim.rows) {
    nlohmann::json part;
    to_json(part, row);
    json["rows"].push_back(part);
  }
  for (const StrataPlan& plan : claim.plans)
    json["plans"].push_back({{"model", plan.model},
                             {"mesh", plan.mesh},
                             {"schedule", plan.schedule},
                             {"bytes", plan.bytes},
                             {"device_bytes", plan.device_bytes},
                             {"step_seconds", plan.step_seconds},
                             {"utilisation", plan.utilisation},
                             {"their_mesh_utilisation", plan.their_mesh_utilisation},
                             {"published_utilisation", plan.published_utilisation}});
  for (const StrataFigure& figure : claim.figures)
    json["figures"].push_back({{"what", figure.what}, {"value", figure.value}});
}

std::string claims_json(const std::vector<Claim>& claims) {
  return json_text(nlohmann::json(claims), 1) + "\n";
}

}  // namespace strata
