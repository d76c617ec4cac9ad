/// Writes the log of a run in MLCommons' format, which their checker reads.
///
///     :::MLLOG {"namespace": "", "time_ms": 1634349955669, "event_type": "INTERVAL_START", ...}
///
/// A resumed run continues its log: its clock has not stopped in between.
///
/// Source   mlcommons/training_policies; github.com/mlcommons/logging.
/// Errors   UserError: the file cannot be written, or is no such log. SystemError: disk full.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace strata {

/// Since 1970, by the wall clock.
std::int64_t wall_milliseconds();

/// What the log of a run's earlier part says.
struct MllogPast {
  std::string lines;  ///< to keep: without an evaluation that did not end, and the run's end
  std::optional<std::int64_t> run_start_milliseconds = {};
  std::int64_t evaluations = 0;
};
/// Of a file that does not exist: nothing.
MllogPast read_mllog(const std::string& path);

class Mllog {
 public:
  /// Writes a file of these lines.
  Mllog(const std::string& path, const std::string& lines);

  // Times: since 1970, in milliseconds.
  void point(std::int64_t time, const std::string& key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata = nlohmann::ordered_json::object());
  void start(std::int64_t time, const std::string& key,
             const nlohmann::ordered_json& metadata = nlohmann::ordered_json::object());
  void stop(std::int64_t time, const std::string& key,
            const nlohmann::ordered_json& metadata = nlohmann::ordered_json::object());

 private:
  void write(std::int64_t time, const std::string& type, const std::string& key,
             const nlohmann::ordered_json& value, const nlohmann::ordered_json& metadata);

  std::string path_;
  std::ofstream out_;
};

}  // namespace strata
