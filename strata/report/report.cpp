// The page is a frame of HTML without data, the JSON of the run, and the script that draws it.
#include "strata/report/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/report/page.h"

namespace strata {
namespace {

double median_speed(const std::vector<StepRecord>& records) {
  std::vector<double> speeds;
  // The first step warms up caches and allocators.
  for (std::size_t i = records.size() > 1 ? 1 : 0; i < records.size(); ++i) {
    speeds.push_back(records[i].units_per_second);
  }
  return median(std::move(speeds));
}

Compared fullest(const std::vector<ReportMemory>& memory) {
  Compared peak;
  for (const ReportMemory& rank : memory) {
    peak.predicted = std::max(peak.predicted, static_cast<double>(rank.predicted_peak));
    peak.measured = std::max(peak.measured, static_cast<double>(rank.measured_peak));
  }
  return peak;
}

std::string bytes(double count) { return format_bytes(std::llround(count)); }

std::string prediction(const Compared& pair, const std::string& predicted) {
  if (pair.predicted <= 0) return "";
  if (pair.measured <= 0) return "predicted";
  return "predicted " + predicted + ", " + signed_percent(pair.difference());
}

// The validation at the end; a recommender is judged by its AUC.
void add_quality_tiles(std::vector<Tile>& tiles, const ReportInput& input) {
  if (!input.validation_loss) return;
  NamedMetrics rest = input.validation_metrics;
  std::erase_if(rest, [](const auto& metric) { return metric.first == "auc"; });
  tiles.push_back({"Validation loss", format_double(*input.validation_loss, 3) + " nats",
                   input.validation_metrics.empty()
                       ? "perplexity " + format_double(std::exp(*input.validation_loss), 2)
                       : metrics_text(rest)});
  if (const std::optional<double> auc = metric_named(input.validation_metrics, "auc"))
    tiles.push_back({"AUC", format_double(*auc, 4), "of the validation samples"});
}

std::vector<Tile> tiles_of(const ReportInput& input) {
  std::vector<Tile> tiles;
  if (!input.records.empty()) {
    const StepRecord& last = input.records.back();
    tiles.push_back({"Training loss", format_double(last.loss, 3) + " nats",
                     "step " + std::to_string(last.step) + ", from " +
                         format_double(input.records.front().loss, 3)});
  }
  add_quality_tiles(tiles, input);
  if (!input.records.empty()) {
    tiles.push_back({"Speed", format_count(median_speed(input.records)) + " " + input.unit + "s/s",
                     "median step"});
  }
  const auto shown = [](const Compared& pair) {
    return pair.measured > 0 ? pair.measured : pair.predicted;
  };
  if (shown(input.step_seconds) > 0) {
    tiles.push_back({"Step time", format_seconds(shown(input.step_seconds)),
                     prediction(input.step_seconds, format_seconds(input.step_seconds.predicted))});
  }
  if (shown(input.bubble) > 0) {
    const bool both = input.bubble.measured > 0 && input.bubble.predicted > 0;
    tiles.push_back(
        {"Bubble", percent(shown(input.bubble)),
         both ? "predicted " + percent(input.bubble.predicted) : "idle fraction of all ranks"});
  }
  const Compared peak = fullest(input.memory);
  if (shown(peak) > 0) {
    tiles.push_back({"Peak memory", bytes(shown(peak)), prediction(peak, bytes(peak.predicted))});
  }
  if (!input.embeddings.empty()) {
    const EmbeddingSize size = sum_of(input.embeddings);
    tiles.push_back({"Embeddings", bytes(static_cast<double>(size.bytes + size.cold_bytes)),
                     format_count(static_cast<double>(size.rows + size.cold_rows)) + " rows, " +
                         format_count(static_cast<double>(size.parameters)) + " parameters"});
  }
  return tiles;
}

std::optional<Card> comparison_card(const ReportInput& input) {
  std::vector<std::vector<std::string>> rows;
  const Compared& step = input.step_seconds;
  if (step.predicted > 0 && step.measured > 0) {
    rows.push_back({"Step time", format_seconds(step.predicted), format_seconds(step.measured),
                    signed_percent(step.difference())});
    const double points = 100 * (input.bubble.measured - input.bubble.predicted);
    rows.push_back(
        {"Bubble", percent(input.bubble.predicted), percent(input.bubble.measured),
         (points < 0 ? "\u2212" : "+") + format_double(std::fabs(points), 1) + " points"});
  }
  for (const auto& [where, tier] : {std::pair("", &input.memory), {", host", &input.host_memory}}) {
    for (std::size_t rank = 0; rank < tier->size(); ++rank) {
      const Compared peak{static_cast<double>((*tier)[rank].predicted_peak),
                          static_cast<double>((*tier)[rank].measured_peak)};
      if (peak.measured <= 0) continue;
      rows.push_back({"Peak memory, rank " + std::to_string(rank) + where, bytes(peak.predicted),
                      bytes(peak.measured), signed_percent(peak.difference())});
    }
  }
  if (rows.empty()) return {};
  return Card{.id = "comparison",
              .title = "Plan and run",
              .caption = "What was predicted before the first step, and what then happened." +
                         (input.step_miss.empty() ? "" : "\n" + input.step_miss),
              .table = {{"", "predicted", "measured", "difference"}, rows}};
}

std::optional<Card> sample_card(const ReportInput& input) {
  if (input.sample.empty()) return {};
  return Card{.id = "sample",
              .title = "What it writes",
              .caption = "The prompt in bold, the rest by the model.",
              .quote = {input.prompt, input.sample}};
}

}  // namespace

Page page_of(const ReportInput& input) {
  Page page{.title = input.title,
            .facts = input.facts,
            .tiles = tiles_of(input),
            .appendices = input.appendices};
  for (const std::optional<Card>& card :
       {timeline_card(input), idle_card(input), device_card(input), loss_curve_card(input),
        sample_card(input), auc_curve_card(input), memory_card(input), embeddings_card(input),
        staleness_card(input), comparison_card(input)})
    if (card) page.cards.push_back(*card);
  for (const ReportTable& table : input.tables)
    page.cards.push_back(
        {.title = table.title, .caption = table.note, .table = {table.columns, table.rows}});
  return page;
}

std::string to_html(const ReportInput& input) { return to_html(page_of(input)); }

void write_report(const std::string& path, const ReportInput& input) {
  write_file(path, to_html(input));
}

}  // namespace strata
