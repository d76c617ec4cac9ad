#include "strata/clock/mllog.h"

#include <chrono>

#include "strata/base/error_source.h"
#include "strata/base/json_text.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

constexpr ErrorSource kLogErrors{"clock.mllog"};
constexpr const char* kToken = ":::MLLOG ";

}  // namespace

std::int64_t wall_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// A run that was killed may have left half a line.
MllogPast read_mllog(const std::string& path) {
  MllogPast past;
  std::ifstream in(path);
  std::string line;
  std::size_t evaluation = 0;  // where the lines of an evaluation begin
  bool evaluates = false;
  for (bool first = true; std::getline(in, line); first = false) {
    const std::size_t token = line.find(kToken);
    if (first && token == std::string::npos)
      throw kLogErrors.user(path, "the file is no log of a run", "lines with :::MLLOG",
                            "another text", "name another file");
    if (token == std::string::npos) continue;
    const ordered_json json =
        ordered_json::parse(line.substr(token + std::char_traits<char>::length(kToken)), nullptr,
                            /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("key") || !json["key"].is_string()) continue;
    const std::string key = json["key"];
    if (key == "run_stop") continue;
    if (key == "block_start") evaluation = past.lines.size();
    if (key == "eval_start") evaluates = true;
    if (key == "eval_stop") {
      evaluates = false;
      ++past.evaluations;
    }
    if (key == "run_start" && json.contains("time_ms") && json["time_ms"].is_number_integer())
      past.run_start_milliseconds = json["time_ms"].get<std::int64_t>();
    past.lines += line + "\n";
  }
  if (evaluates) past.lines.resize(evaluation);
  return past;
}

Mllog::Mllog(const std::string& path, const std::string& lines)
    : path_(path), out_(path, std::ios::trunc) {
  out_ << lines << std::flush;
  if (!out_)
    throw kLogErrors.user(path, "the log cannot be written", "a file", "none", "name another file");
}

void Mllog::point(std::int64_t time, const std::string& key, const ordered_json& value,
                  const ordered_json& metadata) {
  write(time, "POINT_IN_TIME", key, value, metadata);
}
void Mllog::start(std::int64_t time, const std::string& key, const ordered_json& metadata) {
  write(time, "INTERVAL_START", key, nullptr, metadata);
}
void Mllog::stop(std::int64_t time, const std::string& key, const ordered_json& metadata) {
  write(time, "INTERVAL_END", key, nullptr, metadata);
}

void Mllog::write(std::int64_t time, const std::string& type, const std::string& key,
                  const ordered_json& value, const ordered_json& metadata) {
  const ordered_json line = {{"namespace", ""}, {"time_ms", time}, {"event_type", type},
                             {"key", key},      {"value", value},  {"metadata", metadata}};
  out_ << kToken << json_text(line) << std::endl;
  if (!out_)
    throw kLogErrors.system(path_, "the log cannot be written", "free space on the disk", "none",
                            "free some space, and resume");
}

}  // namespace strata
