// The HTML is built directly: there are few sections, and all external text goes through
// escape_html(). A template library would not be shorter.
#include "strata/report/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/measurement.h"
#include "strata/base/units.h"
#include "strata/report/html.h"

namespace strata {
namespace {

constexpr std::size_t kLongFact = 60;  // characters; a longer fact has a line of its own

std::string header(const ReportInput& input) {
  std::string facts;
  for (const auto& [name, value] : input.facts) {
    facts += std::string(value.size() > kLongFact ? "<div class=\"wide\">" : "<div>") + "<dt>" +
             escape_html(name) + "</dt><dd>" + escape_html(value) + "</dd></div>";
  }
  return "<header><p class=\"brand\">" + std::string(R"(<svg width="22" height="22" )") +
         R"(viewBox="0 0 22 22" aria-hidden="true"><path d="M11 2 21 7 11 12 1 7z"/>)" +
         R"(<path d="m1 11 10 5 10-5" class="second"/><path d="m1 15 10 5 10-5" class="third"/>)" +
         "</svg>Strata</p><h1>" + escape_html(input.title) + "</h1>" +
         (facts.empty() ? "" : "<dl>" + facts + "</dl>") + "</header>\n";
}

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

// The unit, after the first space, is printed smaller.
std::string tile(const std::string& name, const std::string& value, const std::string& note) {
  const std::size_t space = value.find(' ');
  std::string figure = value;
  if (space != std::string::npos) {
    figure = value.substr(0, space) + "<small>" + value.substr(space) + "</small>";
  }
  return "<div class=\"tile\"><div class=\"name\">" + name + "</div><div class=\"value\">" +
         figure + "</div><div class=\"note\">" + note + "</div></div>";
}

std::string prediction(const Compared& pair, const std::string& predicted) {
  if (pair.predicted <= 0) return "";
  if (pair.measured <= 0) return "predicted";
  return "predicted " + predicted + ", " + signed_percent(pair.difference());
}

// The validation at the end; a recommender is judged by its AUC.
std::string quality_tiles(const ReportInput& input) {
  if (!input.validation_loss) return "";
  NamedMetrics rest = input.validation_metrics;
  std::erase_if(rest, [](const auto& metric) { return metric.first == "auc"; });
  std::string all = tile("Validation loss", format_double(*input.validation_loss, 3) + " nats",
                         input.validation_metrics.empty()
                             ? "perplexity " + format_double(std::exp(*input.validation_loss), 2)
                             : metrics_text(rest));
  if (const std::optional<double> auc = metric_named(input.validation_metrics, "auc"))
    all += tile("AUC", format_double(*auc, 4), "of the validation samples");
  return all;
}

std::string tiles(const ReportInput& input) {
  std::string all;
  if (!input.records.empty()) {
    const StepRecord& last = input.records.back();
    all += tile("Training loss", format_double(last.loss, 3) + " nats",
                "step " + std::to_string(last.step) + ", from " +
                    format_double(input.records.front().loss, 3));
  }
  all += quality_tiles(input);
  if (!input.records.empty()) {
    all += tile("Speed", format_count(median_speed(input.records)) + " " + input.unit + "s/s",
                "median step");
  }
  const auto shown = [](const Compared& pair) {
    return pair.measured > 0 ? pair.measured : pair.predicted;
  };
  if (shown(input.step_seconds) > 0) {
    all += tile("Step time", format_seconds(shown(input.step_seconds)),
                prediction(input.step_seconds, format_seconds(input.step_seconds.predicted)));
  }
  if (shown(input.bubble) > 0) {
    const bool both = input.bubble.measured > 0 && input.bubble.predicted > 0;
    all +=
        tile("Bubble", percent(shown(input.bubble)),
             both ? "predicted " + percent(input.bubble.predicted) : "idle fraction of all ranks");
  }
  const Compared peak = fullest(input.memory);
  if (shown(peak) > 0) {
    all += tile("Peak memory", bytes(shown(peak)), prediction(peak, bytes(peak.predicted)));
  }
  if (!input.embeddings.empty()) {
    const EmbeddingSize size = sum_of(input.embeddings);
    all += tile("Embeddings", bytes(static_cast<double>(size.bytes + size.cold_bytes)),
                format_count(static_cast<double>(size.rows + size.cold_rows)) + " rows, " +
                    format_count(static_cast<double>(size.parameters)) + " parameters");
  }
  return all.empty() ? "" : "<div class=\"tiles\">" + all + "</div>\n";
}

std::string comparison(const ReportInput& input) {
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
  if (rows.empty()) return "";
  return "<section class=\"card\" id=\"comparison\"><div class=\"head\"><div><h2>Plan and run</h2>"
         "<p>What was predicted before the first step, and what then happened." +
         (input.step_miss.empty() ? "" : "<br>" + escape_html(input.step_miss)) +
         "</p></div></div>" + table_html({"", "predicted", "measured", "difference"}, rows) +
         "</section>\n";
}

std::string sample(const ReportInput& input) {
  if (input.sample.empty()) return "";
  return "<section class=\"card\" id=\"sample\"><div class=\"head\"><div><h2>What it writes</h2>"
         "<p>The prompt in bold, the rest by the model.</p></div></div><blockquote><b>" +
         escape_html(input.prompt) + "</b>" + escape_html(input.sample) +
         "</blockquote></section>\n";
}

std::string table_sections(const ReportInput& input) {
  std::string all;
  for (const ReportTable& table : input.tables)
    all += "<section class=\"card\"><div class=\"head\"><div><h2>" + escape_html(table.title) +
           "</h2><p>" + escape_html(table.note) + "</p></div></div>" +
           table_html(table.columns, table.rows) + "</section>\n";
  return all;
}

std::string appendices(const ReportInput& input) {
  std::string all;
  for (const auto& [title, text] : input.appendices) {
    all += "<details class=\"card\"><summary>" + escape_html(title) + "</summary><pre>" +
           escape_html(text) + "</pre></details>\n";
  }
  return all;
}

}  // namespace

std::string to_html(const ReportInput& input) {
  const std::string text = sample(input) + auc_curve_section(input);
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
         escape_html(input.title) + " \u00b7 Strata</title>\n<style>" +
         std::string(kReportStyleSheet) + "</style>\n</head>\n<body>\n<main>\n" + header(input) +
         tiles(input) + timeline_section(input) + idle_section(input) + device_section(input) +
         "<div class=\"" + (text.empty() ? "" : "columns") + "\">" + loss_curve_section(input) +
         text + "</div>\n" + memory_section(input) + embeddings_section(input) +
         staleness_section(input) + comparison(input) + table_sections(input) + appendices(input) +
         "</main>\n<div id=\"tip\" role=\"status\" hidden></div>\n<script>" +
         std::string(kReportScript) + "</script>\n</body>\n</html>\n";
}

void write_report(const std::string& path, const ReportInput& input) {
  write_file(path, to_html(input));
}

}  // namespace strata
