#include "strata/cli/serving_plan_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "strata/base/json_text.h"
#include "strata/base/text_table.h"
#include "strata/base/units.h"
#include "strata/cli/weights_option.h"
#include "strata/measure/processor.h"
#include "strata/plan/text/plan_text.h"
#include "strata/serve/pass_seconds.h"
#include "strata/serve/serving_plan.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr std::int64_t kForecastPosition = 256;  // tokens before the measured one, if there is room

std::string headline(const ServedModel& served, const ServingRequest& request) {
  const int ranks = served.ranks.mesh.size();
  return std::string(name_of(served.model.kind)) + " · " + std::to_string(ranks) +
         (ranks == 1 ? " rank" : " ranks (" + served.ranks.mesh.text(" × ") + ")") + " · " +
         std::to_string(request.model.num_layers()) + " layers · " +
         precision_name(served.precision) + weights_ending(" · weights ", served.weights) +
         " · passes of at most " + std::to_string(request.pass_tokens) + " tokens\n";
}

std::string pages_line(const ServingRequest& request) {
  const std::int64_t tokens = request.room.pages * request.room.page_tokens;
  const std::int64_t lower = request.room.host_pages + request.room.disk_pages;
  const std::int64_t most = tokens / std::max<std::int64_t>(1, request.context);
  return "pages      " + std::to_string(request.room.pages) + " of " +
         std::to_string(request.room.page_tokens) + " tokens: " + std::to_string(most) +
         (most == 1 ? " answer" : " answers") + " of " + std::to_string(request.context) +
         " tokens, the longest, or more shorter ones" +
         (lower > 0 ? "; " + std::to_string(lower) + " more for texts that no answer needs now"
                    : "") +
         "\n";
}

// What the copies of a pass take at least, on the rank that has most.
std::string rates_line(const ServingPlan& plan, const TierRates& rates) {
  std::int64_t copied = 0, read = 0;
  for (const TierTraffic& rank : plan.traffic) {
    copied = std::max(copied, rank.to_device);
    read = std::max(read, rank.disk_read);
  }
  const auto part = [](const std::string& what, std::int64_t bytes, double rate) {
    return what + " " + format_bytes(static_cast<std::int64_t>(rate)) + "/s, " +
           format_seconds(static_cast<double>(bytes) / rate) + " a pass";
  };
  return "rates      " + part("link", copied, rates.to_device) +
         (read > 0 ? "; " + part("disk", read, rates.disk_read) : "") +
         (rates.text.find("assumed") == std::string::npos
              ? "\n"
              : " (assumed; `strata doctor` measures them)\n");
}

// Adds the seconds of passes.
void add_seconds(std::string& text, json& numbers, const ServedModel& served,
                 const ServingRequest& request, const ServingPlan& plan, std::int64_t sequences) {
  const std::int64_t position = std::min(kForecastPosition, request.context / 2);
  const std::int64_t prompt = std::min(request.pass_tokens, request.context);
  const std::int64_t most = std::min(
      request.pass_logits,
      std::max<std::int64_t>(1, request.room.pages * request.room.page_tokens / (position + 1)));
  std::vector<PassShape> shapes{{.tokens = prompt}};
  const std::vector<std::int64_t> counts = numbers_at_once(std::min(most, sequences));
  for (const std::int64_t count : counts)
    shapes.push_back({.sequences = count, .tokens = 1, .position = position});
  const std::vector<PassSeconds> layers = measure_passes(served, shapes);
  const double first = pass_seconds(plan, request, layers[0]);
  text += "prompts    " + format_count(static_cast<double>(prompt) / first) +
          " tokens a second; the first token of an answer " + format_seconds(first) +
          " after a prompt of " + std::to_string(prompt) + " tokens\n";
  numbers["prompt"] = {{"tokens", prompt}, {"seconds", first}};
  TextTable table("rrr");
  table.add_row({"answers at once", "tokens a second", "between tokens"});
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double seconds = pass_seconds(plan, request, layers[i + 1]);
    table.add_row({std::to_string(counts[i]),
                   format_double(static_cast<double>(counts[i]) / seconds, 1),
                   format_seconds(seconds)});
    numbers["answers"].push_back({{"at_once", counts[i]},
                                  {"position", position},
                                  {"seconds_between_tokens", seconds},
                                  {"tokens_per_second", static_cast<double>(counts[i]) / seconds}});
  }
  text += "\n" + table.text();
}

}  // namespace

std::vector<std::int64_t> numbers_at_once(std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 1; count < most; count *= 4) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

ServingForecast forecast_serving(const ServedModel& served, const ServiceOptions& options,
                                 const MachineProfile& machine, bool measure) {
  const Sequential model = network_of(served);
  ServingRequest request = serving_request(served, model, options);
  request.rates = tier_rates(served.memory, machine, /*update_threads=*/0, /*measured=*/true);
  const ServingPlan plan = plan_serving(request);
  std::string text =
      headline(served, request) + byte_table(plan.ledger, served.memory.device.count);
  text += host_table(plan.ledger, served.memory.host.count) +
          disk_table(plan.ledger, served.memory.disk.bytes.count) + "\n";
  text += pages_line(request);
  if (options.draft)
    text += "guesses    " + std::to_string(options.guesses) + " a pass by " +
            weights_name(options.draft->checkpoint, options.draft->weights) +
            ", on the rank with the logits" +
            (measure ? "; the times below are without them\n" : "\n");
  if (const std::string tiers = tiers_sentence(plan); !tiers.empty())
    text += "tiers      " + tiers + "\n" + rates_line(plan, request.rates);
  json numbers = {
      {"ranks", served.ranks.mesh.size()},     {"context", request.context},
      {"pages", request.room.pages},           {"page_tokens", request.room.page_tokens},
      {"layers", model.num_layers()},          {"weights", name_of(served.weights)},
      {"layers_off_device", plan.layers_away}, {"layers_on_disk", plan.layers_on_disk},
      {"draft_bytes", request.draft_bytes},    {"host_pages", request.room.host_pages},
      {"disk_pages", request.room.disk_pages}};
  for (std::size_t rank = 0; rank < plan.ledger.size(); ++rank)
    numbers["stages"].push_back({{"peak_bytes", plan.ledger[rank].peak_bytes},
                                 {"host_bytes", plan.ledger[rank].host.total()},
                                 {"disk_bytes", plan.ledger[rank].disk_bytes},
                                 {"bytes_to_device", plan.traffic[rank].to_device}});
  if (measure) add_seconds(text, numbers, served, request, plan, options.sequences);
  return {.text = std::move(text), .json = json_text(numbers, 1)};
}

}  // namespace strata
