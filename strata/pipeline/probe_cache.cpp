#include "strata/pipeline/probe_cache.h"

#include <torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "strata/pipeline/costs.h"

namespace strata {
namespace {

std::string machine_name() {
  std::string model = "unknown processor", line;
  for (std::ifstream cpu("/proc/cpuinfo"); std::getline(cpu, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  return model + " x" + std::to_string(std::thread::hardware_concurrency()) + ", libtorch " +
         TORCH_VERSION + ": ";
}

}  // namespace

std::string default_probe_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::string(cache) + "/strata/probe.json";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/strata/probe.json";
  return "";
}

ProbeCache::ProbeCache(std::string file) : file_(std::move(file)), machine_(machine_name()) {
  if (file_.empty()) return;
  std::ifstream stream(file_);
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  for (const auto& [key, seconds] : json.items())
    if (seconds.is_array() && seconds.size() == 3)
      entries_[key] = {seconds[0].get<double>(), seconds[1].get<double>(),
                       seconds[2].get<double>()};
}

std::optional<LayerSeconds> ProbeCache::find(const std::string& key) const {
  const auto entry = entries_.find(machine_ + key);
  if (entry == entries_.end()) return std::nullopt;
  return entry->second;
}

void ProbeCache::insert(const std::string& key, const LayerSeconds& seconds) {
  entries_[machine_ + key] = seconds;
  changed_ = true;
}

void ProbeCache::save() const {
  if (file_.empty() || !changed_) return;
  nlohmann::json json;
  for (const auto& [key, s] : entries_) json[key] = {s.forward, s.backward, s.update};
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), ignored);
  // Beside and renamed: another run may be reading.
  const std::string beside = file_ + "." + std::to_string(::getpid());
  if (std::ofstream stream(beside); stream << json.dump(1) << '\n')
    std::filesystem::rename(beside, file_, ignored);
}

}  // namespace strata
