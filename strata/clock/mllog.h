/// Writes the log of a run in MLCommons' format, which their checker reads.
///
///     :::MLLOG {"namespace": "", "time_ms": 1634349955669, "event_type": "INTERVAL_START", ...}
///
/// A log that exists is continued: a resumed run has one log, and its clock does not stop in
/// between.
///
/// Source   mlcommons/training_policies; github.com/mlcommons/logging.
/// Errors   UserError: the file cannot be written, or is no such log. SystemError: disk full.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace strata {

/// Since 1970, by the wall clock.
std::int64_t wall_milliseconds();

class Mllog {
 public:
  explicit Mllog(const std::string& path);

  void point(const std::string& key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata);
  void start(const std::string& key, const nlohmann::ordered_json& metadata);
  void stop(const std::string& key, const nlohmann::ordered_json& metadata);

  /// When the run of the continued log began: the time of its run_start. None: a new log.
  std::optional<std::int64_t> run_start_milliseconds() const { return run_start_; }

 private:
  void write(const std::string& type, const std::string& key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata);
  void read_start();

  std::string path_;
  std::ofstream out_;
  std::optional<std::int64_t> run_start_;
};

}  // namespace strata
