#include "strata/cli/server/measured_settings.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/cli/served_recipe.h"
#include "strata/cli/serving_plan_text.h"
#include "strata/plan/search/mesh_check.h"
#include "strata/serve/model_service.h"
#include "strata/task/task.h"

namespace strata {
namespace {

constexpr std::int64_t kPromptTokens = 128, kAnswerTokens = 64;  // unless the request says

bool sets(const std::vector<std::string>& overrides, const std::string& field) {
  return std::ranges::any_of(overrides,
                             [&](const std::string& each) { return each.starts_with(field); });
}

// The part of a setting that one axis of the sweep decides.
struct Choice {
  std::string name;
  std::vector<std::string> overrides = {};
  WeightType weights = WeightType::kPrecision;
};

Choice choice_of(const Mesh& mesh) {
  Choice choice;
  for (const AxisInfo& axis : kAxes) {
    if (axis.id == Axis::kData || axis.id == Axis::kContext) continue;
    const std::string size = std::to_string(mesh[axis.id]);
    choice.overrides.push_back(std::string("mesh.") + axis.name + "=" + size);
    if (mesh[axis.id] > 1)
      choice.name += (choice.name.empty() ? "" : " ") + std::string(axis.name) + " " + size;
  }
  if (choice.name.empty()) choice.name = "1 rank";
  return choice;
}

// 1, 2, 4 and so on up to the number of cores.
std::vector<Choice> meshes(const Recipe& recipe) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const MeshLimits limits = recipe.task->mesh_limits(recipe);
  std::vector<Choice> choices;
  for (int ranks = 1; ranks <= cores; ranks *= 2)
    for (const Mesh& mesh : legal_meshes(ranks, 1, limits))
      if (mesh.weight_ranks() == 1) choices.push_back(choice_of(mesh));
  return choices;
}

// The model's own precision, or fp32 and bf16, and weights in fewer bits with values of fp32.
std::vector<Choice> types(const MeasureRequest& request) {
  const bool chosen = sets(request.overrides, "train.precision=");
  std::vector<Choice> choices;
  for (const WeightType type : request.weights) {
    const auto in = [&](const std::string& name, const std::string& precision) {
      std::vector<std::string> overrides;
      if (!chosen) overrides.push_back("train.precision=" + precision);
      choices.push_back({name, std::move(overrides), type});
    };
    if (type != WeightType::kPrecision) {
      in(name_of(type), "fp32");
    } else if (chosen) {
      in("", "");
    } else {
      in("fp32", "fp32");
      in("bf16", "bf16");
    }
  }
  return choices;
}

std::vector<MeasuredSetting> settings_of(const MeasureRequest& request) {
  const Recipe recipe = recipe_of(request.checkpoint, request.overrides);
  std::vector<Choice> on{{"the mesh of the recipe"}};
  if (!sets(request.overrides, "mesh.")) on = meshes(recipe);
  std::vector<MeasuredSetting> settings;
  for (const Choice& type : types(request))
    for (const Choice& mesh : on) {
      MeasuredSetting setting{.name = mesh.name + (type.name.empty() ? "" : ", ") + type.name,
                              .overrides = mesh.overrides,
                              .weights = type.weights};
      std::ranges::copy(type.overrides, std::back_inserter(setting.overrides));
      settings.push_back(std::move(setting));
    }
  return settings;
}

std::string line_of(const MeasuredSetting& setting, const MeasuredRow& row) {
  const auto waits = [](const Waits& of) {
    return format_seconds(of.median) + " (99 of 100: " + format_seconds(of.most) + ")";
  };
  return setting.name + ", " + std::to_string(row.at_once) +
         " at once: " + format_double(row.rates.tokens_per_second, 1) +
         " tokens a second; first token after " + waits(row.rates.first_token) +
         ", next ones after " + waits(row.rates.between_tokens);
}

ServiceLoad load_for(ServiceLoad load, std::int64_t context) {
  if (load.answer_tokens == 0)
    load.answer_tokens = std::clamp<std::int64_t>(context / 3, 2, kAnswerTokens);
  if (load.prompt_tokens == 0)
    load.prompt_tokens = std::clamp<std::int64_t>(context - load.answer_tokens, 1, kPromptTokens);
  if (load.prompt_tokens + load.answer_tokens <= context) return load;
  throw UserError(
      {.operation = "cli.serve",
       .where = "--measure-prompt, --measure-answer",
       .what = "prompts and answers are longer than the context",
       .expected = "at most " + std::to_string(context) + " tokens together",
       .got = std::to_string(load.prompt_tokens) + " and " + std::to_string(load.answer_tokens),
       .fix = "choose fewer"});
}

void measure(const MeasureRequest& request, ServiceLoad& load, MeasuredSetting& setting) {
  std::vector<std::string> overrides = request.overrides;
  std::ranges::copy(setting.overrides, std::back_inserter(overrides));
  const ServedModel served =
      served_model(recipe_of(request.checkpoint, overrides), request.checkpoint, setting.weights);
  const ServiceOptions options = request.serving.options(served);
  ModelService service(served, options);
  service.wait_until_ready();
  for (const RankLedger& rank : service.plan().ledger)
    setting.peak_bytes = std::max(setting.peak_bytes, rank.peak_bytes);
  load = load_for(load, service.context());
  for (const std::int64_t at_once : numbers_at_once(options.sequences)) {
    load.clients = at_once;
    setting.rows.push_back({at_once, measure_load(service, load)});
    request.report(line_of(setting, setting.rows.back()));
  }
}

}  // namespace

Measurement measure_settings(const MeasureRequest& request) {
  Measurement measurement{.load = request.load, .settings = settings_of(request)};
  for (MeasuredSetting& setting : measurement.settings) {
    try {
      measure(request, measurement.load, setting);
    } catch (const UserError& error) {
      setting.refusal = error.text().what;
      request.report(setting.name + ": not measured: " + setting.refusal);
    }
  }
  const auto& settings = measurement.settings;
  if (std::ranges::all_of(settings, [](const auto& each) { return each.rows.empty(); }))
    throw UserError({.operation = "cli.serve",
                     .where = "--measure",
                     .what = "no setting can be measured",
                     .expected = "a mesh of this machine that can serve the model",
                     .got = settings.front().name + ": " + settings.front().refusal,
                     .fix = "see strata plan --serve"});
  return measurement;
}

FoundRow best_row(const Measurement& measurement, double (*number)(const ServiceRates&),
                  bool least) {
  FoundRow best;
  for (const MeasuredSetting& setting : measurement.settings)
    for (const MeasuredRow& row : setting.rows) {
      const double value = number(row.rates);
      const double known = best.row == nullptr ? 0 : number(best.row->rates);
      if (best.row == nullptr || (least ? value < known : value > known)) best = {&setting, &row};
    }
  return best;
}

}  // namespace strata
