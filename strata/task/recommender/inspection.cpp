#include "strata/task/recommender/inspection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "strata/base/json_text.h"
#include "strata/base/units.h"
#include "strata/base/user_text.h"
#include "strata/report/page.h"

namespace strata {
namespace {

double metric(const Evaluation& evaluation, const std::string& name) {
  for (const auto& [known, value] : evaluation.metrics)
    if (known == name) return value;
  return std::numeric_limits<double>::quiet_NaN();
}

// Permuted minus original: a loss of quality is negative for an AUC, positive for an entropy.
double change(const RecommenderInspection& found, const FeatureImportance& of,
              const std::string& name) {
  return metric(of.permuted, name) - metric(found.evaluation, name);
}

std::string signed_text(double value) {
  if (std::isnan(value)) return "";
  return (value < 0 ? "" : "+") + format_double(value, 4);
}

std::string share(double part, double whole) { return whole > 0 ? percent(part / whole, 2) : ""; }

// The most important feature first.
std::vector<FeatureImportance> by_importance(const RecommenderInspection& found) {
  std::vector<FeatureImportance> sorted = found.importance;
  std::ranges::stable_sort(sorted, [&](const FeatureImportance& a, const FeatureImportance& b) {
    return a.permuted.loss > b.permuted.loss;
  });
  return sorted;
}

ReportTable importance_table(const RecommenderInspection& found) {
  ReportTable table{
      .title = "Feature importance",
      .note = "What the validation samples lose when a feature is permuted among them.",
      .columns = {"feature", "AUC", "normalized entropy", "log loss"},
      .rows = {}};
  for (const FeatureImportance& of : by_importance(found))
    table.rows.push_back({of.feature, signed_text(change(found, of, "auc")),
                          signed_text(change(found, of, "normalized_entropy")),
                          signed_text(of.permuted.loss - found.evaluation.loss)});
  return table;
}

ReportTable hot_table(const RecommenderInspection& found, const HotTable& hot) {
  const HotRows& rows = hot.rows;
  const auto all = static_cast<double>(rows.updates + rows.cold_updates);
  ReportTable table{
      .title = "Hot ids of " + hot.table,
      .note = format_count(static_cast<double>(rows.rows)) + " rows in memory, " +
              format_count(static_cast<double>(rows.cold_rows)) + " on disk" +
              (rows.cold_rows > 0 ? " with " + share(static_cast<double>(rows.cold_updates), all) +
                                        " of the updates"
                                  : "") +
              ". A step that has an id updates it once, however often; ids with equally many "
              "updates stand in the order of their numbers.",
      .columns = {"id", "updates", "of all updates", "of the steps", "lives in"},
      .rows = {}};
  for (const HotId& id : rows.ids()) {
    const auto hits = static_cast<double>(id.hits);
    table.rows.push_back({std::to_string(id.id), std::to_string(id.hits), share(hits, all),
                          share(hits, static_cast<double>(found.steps)), name_of(id.tier)});
  }
  if (hot.texts.empty()) return table;
  table.columns.insert(table.columns.begin(), "text");
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    table.rows[i].insert(table.rows[i].begin(), excerpt(hot.texts[i]));
  return table;
}

nlohmann::ordered_json metrics_json(const Evaluation& evaluation) {
  nlohmann::ordered_json json{{"log_loss", evaluation.loss}};
  for (const auto& [name, value] : evaluation.metrics) json[name] = value;
  return json;
}

nlohmann::ordered_json to_json(const RecommenderInspection& found) {
  nlohmann::ordered_json json = metrics_json(found.evaluation);
  json["steps"] = found.steps;
  for (const FeatureImportance& of : by_importance(found)) {
    nlohmann::ordered_json feature{{"feature", of.feature},
                                   {"permuted", metrics_json(of.permuted)}};
    for (const char* name : {"auc", "normalized_entropy"})
      if (const double by = change(found, of, name); !std::isnan(by))
        feature[std::string(name) + "_change"] = by;
    json["importance"].push_back(std::move(feature));
  }
  for (const HotTable& hot : found.hot) {
    nlohmann::ordered_json table{{"table", hot.table},
                                 {"rows", hot.rows.rows},
                                 {"cold_rows", hot.rows.cold_rows},
                                 {"updates", hot.rows.updates + hot.rows.cold_updates},
                                 {"cold_updates", hot.rows.cold_updates},
                                 {"ids", nlohmann::ordered_json::array()}};
    for (const HotId& id : hot.rows.ids())
      table["ids"].push_back({{"id", id.id}, {"updates", id.hits}, {"tier", name_of(id.tier)}});
    for (std::size_t i = 0; i < hot.texts.size(); ++i) table["ids"][i]["text"] = hot.texts[i];
    json["hot_ids"].push_back(std::move(table));
  }
  return json;
}

}  // namespace

Inspection inspection_of(const RecommenderInspection& found, bool hot_ids_in_report_alone) {
  Inspection inspection{.json = json_text(to_json(found))};
  if (!found.importance.empty()) inspection.tables.push_back(importance_table(found));
  for (const HotTable& hot : found.hot)
    (hot_ids_in_report_alone ? inspection.report_tables : inspection.tables)
        .push_back(hot_table(found, hot));
  return inspection;
}

}  // namespace strata
