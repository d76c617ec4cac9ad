#include "strata/cli/server/measurement_page.h"

#include <algorithm>
#include <thread>

#include "strata/base/units.h"
#include "strata/report/page.h"

namespace strata {
namespace {

using Number = double (*)(const ServiceRates&);

double tokens(const ServiceRates& rates) { return rates.tokens_per_second; }
double first_token(const ServiceRates& rates) { return rates.first_token.median; }
double next_token(const ServiceRates& rates) { return rates.between_tokens.median; }
std::string rate_text(double rate) { return format_double(rate, 1); }

Tile tile(const Measurement& measurement, const std::string& name, Number number, bool least,
          std::string (*text)(double)) {
  const FoundRow best = best_row(measurement, number, least);
  if (best.row == nullptr) return {name, "-", "nothing was measured"};
  return {name, text(number(best.row->rates)),
          best.setting->name + ", " + std::to_string(best.row->at_once) + " at once"};
}

// A row of bars for each setting, a bar for each number of answers at once.
Card bars(const Measurement& measurement, const std::string& title, const std::string& caption,
          Number number, std::string (*text)(double)) {
  const FoundRow longest = best_row(measurement, number);
  Card card{.title = title, .caption = caption};
  for (const MeasuredSetting& setting : measurement.settings) {
    if (setting.rows.empty()) continue;
    BarRow row{.name = setting.name};
    for (const MeasuredRow& each : setting.rows) {
      const std::string at_once = std::to_string(each.at_once) + " at once";
      const std::string style = "kind" + std::to_string(row.bars.size());
      const double value = number(each.rates);
      row.bars.push_back({.style = "equal",
                          .segments = {{style, setting.name + ", " + at_once + ": " + text(value),
                                        rounded(100 * value / number(longest.row->rates), 2)}}});
      row.figures.push_back({text(value), at_once});
      if (card.bars.empty()) card.legend.push_back({style, at_once});
    }
    card.bars.push_back(std::move(row));
  }
  return card;
}

Card all_rows(const Measurement& measurement) {
  Table table{.columns = {"", "at once", "tokens a second", "prompt tokens a second", "first token",
                          "99 of 100", "next token", "99 of 100", "memory of a rank"}};
  for (const MeasuredSetting& setting : measurement.settings)
    for (const MeasuredRow& row : setting.rows)
      table.rows.push_back(
          {setting.name, std::to_string(row.at_once), rate_text(row.rates.tokens_per_second),
           rate_text(row.rates.prompt_tokens_per_second),
           format_seconds(row.rates.first_token.median), format_seconds(row.rates.first_token.most),
           format_seconds(row.rates.between_tokens.median),
           format_seconds(row.rates.between_tokens.most), format_bytes(setting.peak_bytes)});
  return {.title = "All numbers",
          .caption =
              "Seconds are medians, and what 99 of 100 stay below. The memory is the planned "
              "peak of the fullest rank, with the cache of keys and values.",
          .table = std::move(table)};
}

Card refusals(const Measurement& measurement) {
  Table table{.columns = {"", "why"}};
  for (const MeasuredSetting& setting : measurement.settings)
    if (!setting.refusal.empty()) table.rows.push_back({setting.name, setting.refusal});
  return {.title = "Not measured", .caption = "", .table = std::move(table)};
}

}  // namespace

std::string measurement_page(const Measurement& measurement, const std::string& model) {
  const ServiceLoad& load = measurement.load;
  Page page{.title = "What a server of " + model + " reaches"};
  page.facts = {{"machine", std::to_string(std::thread::hardware_concurrency()) + " cores"},
                {"prompts", std::to_string(load.prompt_tokens) + " random tokens"},
                {"answers", std::to_string(load.answer_tokens) + " tokens"},
                {"time", format_seconds(std::chrono::duration<double>(load.time).count()) +
                             " or longer for each number"},
                {"clients", "each sends its next request when it has its answer"}};
  page.tiles = {tile(measurement, "most tokens a second", tokens, false, rate_text),
                tile(measurement, "first token", first_token, true, format_seconds),
                tile(measurement, "next token", next_token, true, format_seconds)};
  if (best_row(measurement, tokens).row != nullptr) {
    page.cards = {bars(measurement, "Tokens a second", "Of all answers together. More is better.",
                       tokens, rate_text),
                  bars(measurement, "Time to the first token",
                       "Median, from a request to the first token of its answer. Less is better.",
                       first_token, format_seconds),
                  bars(measurement, "Time between tokens", "Median, of one answer. Less is better.",
                       next_token, format_seconds),
                  all_rows(measurement)};
  }
  Card refused = refusals(measurement);
  if (!refused.table.rows.empty()) page.cards.push_back(std::move(refused));
  return to_html(page);
}

}  // namespace strata
