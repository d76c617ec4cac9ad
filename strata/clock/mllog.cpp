#include "strata/clock/mllog.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "strata/base/error_source.h"

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

Mllog::Mllog(const std::string& path) : path_(path) {
  read_start();
  out_.open(path, std::ios::app);
  if (!out_)
    throw kLogErrors.user(path, "the log cannot be written", "a file", "none", "name another file");
}

// A run that is killed may leave half a line.
void Mllog::read_start() {
  std::ifstream in(path_);
  std::string line;
  bool first = true;
  while (std::getline(in, line)) {
    const std::size_t token = line.find(kToken);
    if (first && token == std::string::npos)
      throw kLogErrors.user(path_, "the file is no log of a run", "lines with :::MLLOG",
                            "another text", "name another file");
    first = false;
    if (token == std::string::npos) continue;
    const ordered_json json =
        ordered_json::parse(line.substr(token + std::char_traits<char>::length(kToken)), nullptr,
                            /*allow_exceptions=*/false);
    if (json.is_object() && json.value("key", "") == "run_start" && json.contains("time_ms") &&
        json["time_ms"].is_number_integer())
      run_start_ = json["time_ms"].get<std::int64_t>();
  }
}

void Mllog::point(const std::string& key, const ordered_json& value, const ordered_json& metadata) {
  write("POINT_IN_TIME", key, value, metadata);
}
void Mllog::start(const std::string& key, const ordered_json& metadata) {
  write("INTERVAL_START", key, nullptr, metadata);
}
void Mllog::stop(const std::string& key, const ordered_json& metadata) {
  write("INTERVAL_END", key, nullptr, metadata);
}

void Mllog::write(const std::string& type, const std::string& key, const ordered_json& value,
                  const ordered_json& metadata) {
  const ordered_json line = {{"namespace", ""},    {"time_ms", wall_milliseconds()},
                             {"event_type", type}, {"key", key},
                             {"value", value},     {"metadata", metadata}};
  out_ << kToken << line.dump() << std::endl;
  if (!out_)
    throw kLogErrors.system(path_, "the log cannot be written", "free space on the disk", "none",
                            "free some space, and resume");
}

}  // namespace strata
