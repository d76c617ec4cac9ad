#include "strata/clock/run_file.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "strata/base/durable_file.h"
#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/json_text.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr ErrorSource kFileErrors{"clock.run_file"};
constexpr const char* kFormat = "strata run 1";

ordered_json json_of(const RunValidation& validation) {
  ordered_json metrics = ordered_json::object();
  for (const auto& [name, value] : validation.metrics) metrics[name] = value;
  return {{"step", validation.step},
          {"samples", validation.samples},
          {"seconds", validation.seconds},
          {"val_loss", validation.loss},
          {"metrics", metrics}};
}

RunValidation validation_of(const ordered_json& json) {
  RunValidation validation{.step = json.at("step"),
                           .samples = json.at("samples"),
                           .seconds = json.at("seconds"),
                           .loss = json.at("val_loss"),
                           .metrics = {}};
  for (const auto& [name, value] : json.at("metrics").items())
    validation.metrics.emplace_back(name, value.get<double>());
  return validation;
}

}  // namespace

const char* name_of(RunStatus status) {
  using enum RunStatus;
  static constexpr EnumNames<RunStatus> kNames{{kRunning, "running"},
                                               {kStopped, "stopped"},
                                               {kComplete, "complete"},
                                               {kReached, "reached"},
                                               {kMissed, "missed"}};
  return kNames[status];
}

RunFile RunFile::read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    if (json.at("format") != kFormat) throw nlohmann::json::other_error::create(500, "", &json);
    RunFile run{.title = json.at("title"),
                .recipe = json.at("recipe"),
                .version = json.at("version"),
                .machine = json.at("machine"),
                .ranks = json.at("ranks"),
                .seed = json.at("seed"),
                .restarts = json.at("restarts"),
                .began_milliseconds = json.at("began_milliseconds"),
                .target = json.at("target"),
                .status = value_named<RunStatus>(json.at("status").get<std::string>())
                              .value_or(RunStatus::kRunning),
                .seconds = json.at("seconds"),
                .median_step_seconds = json.at("median_step_seconds"),
                .joules = {},
                .validations = {}};
    if (!json.at("joules").is_null()) run.joules = json["joules"].get<double>();
    for (const ordered_json& validation : json.at("validations"))
      run.validations.push_back(validation_of(validation));
    return run;
  } catch (const nlohmann::json::exception&) {
    throw kFileErrors.user(
        path, "it does not describe a run",
        "a file of strata train --run-json in the format " + std::string(kFormat),
        text.empty() ? "nothing" : "another text", "name such a file");
  }
}

void RunFile::write(const std::string& path) const {
  ordered_json all = ordered_json::array();
  for (const RunValidation& validation : validations) all.push_back(json_of(validation));
  const ordered_json json = {{"format", kFormat},
                             {"status", name_of(status)},
                             {"target", target},
                             {"seconds", seconds},
                             {"title", title},
                             {"version", version},
                             {"machine", machine},
                             {"ranks", ranks},
                             {"seed", seed},
                             {"restarts", restarts},
                             {"began_milliseconds", began_milliseconds},
                             {"median_step_seconds", median_step_seconds},
                             {"joules", joules ? ordered_json(*joules) : ordered_json()},
                             {"validations", all},
                             {"recipe", recipe}};
  write_file(path + ".part", json_text(json, 1) + "\n");
  rename_durably(path + ".part", path);
}

}  // namespace strata
