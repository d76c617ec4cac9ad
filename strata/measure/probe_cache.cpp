// Several runs may write the file: each reads it again before it writes, and replaces it by a
// rename, so that a reader never sees a partial file.
#include "strata/measure/probe_cache.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace strata {
namespace {

constexpr const char* kPartNames[kNumLayerParts] = {"forward", "backward", "update", "inputs",
                                                    "weights"};

// Only layers whose backwards are divided have halves.
bool is_half(int part) { return part >= static_cast<int>(LayerPart::kInputs); }

nlohmann::json to_json(const LayerSeconds& seconds) {
  nlohmann::json json;
  for (int part = 0; part < kNumLayerParts; ++part) {
    const Timing& timing = seconds.parts[part];
    if (is_half(part) && timing.samples == 0) continue;
    json[kPartNames[part]] = {timing.seconds, timing.spread, timing.samples};
  }
  return json;
}

std::optional<LayerSeconds> from_json(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  LayerSeconds seconds;
  for (int part = 0; part < kNumLayerParts; ++part) {
    const auto numbers = json.find(kPartNames[part]);
    if (is_half(part) && numbers == json.end()) continue;
    if (numbers == json.end() || !numbers->is_array() || numbers->size() != 3) return std::nullopt;
    for (const nlohmann::json& number : *numbers)
      if (!number.is_number() || !(number.get<double>() >= 0)) return std::nullopt;
    seconds.parts[part] = {(*numbers)[0].get<double>(), (*numbers)[1].get<double>(),
                           static_cast<std::int64_t>((*numbers)[2].get<double>())};
  }
  return seconds;
}

}  // namespace

ProbeCache::ProbeCache(std::string file, const ProcessorIdentity& identity)
    : file_(std::move(file)), machine_(identity.text() + ": ") {
  const nlohmann::json all = read_cache_file(file_);
  for (const auto& [key, json] : all.items()) {
    if (!key.starts_with(machine_)) continue;
    if (const auto seconds = from_json(json)) entries_[key.substr(machine_.size())] = *seconds;
  }
}

std::optional<LayerSeconds> ProbeCache::find(const std::string& key) const {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return std::nullopt;
  return entry->second;
}

void ProbeCache::insert(const std::string& key, const LayerSeconds& seconds) {
  entries_[key] = changed_[key] = seconds;
}

bool ProbeCache::is_disturbed(const std::string& key) const {
  const auto entry = entries_.find(key);
  return entry != entries_.end() && (entry->second[LayerPart::kForward].spread > kDisturbedSpread ||
                                     entry->second[LayerPart::kBackward].spread > kDisturbedSpread);
}

void ProbeCache::measured_again(const std::string& key, const LayerSeconds& seconds) {
  const auto entry = entries_.find(key);
  LayerSeconds best = entry == entries_.end() ? seconds : entry->second;
  for (int part = 0; part < kNumLayerParts; ++part)
    if (best.parts[part].samples == 0 || seconds.parts[part].seconds < best.parts[part].seconds)
      best.parts[part] = seconds.parts[part];
  insert(key, best);
}

void ProbeCache::correct(const std::string& key, const LayerSeconds& trained) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return;
  LayerSeconds corrected = entry->second;
  bool any = false;
  for (int part = 0; part < kNumLayerParts; ++part) {
    const Timing& seen = trained.parts[part];
    Timing& known = corrected.parts[part];
    const bool disturbed = seen.seconds > known.seconds && seen.spread > kDisturbedSpread &&
                           seen.spread > known.spread;
    if (seen.samples == 0 || (known.samples > 0 && disturbed)) continue;
    known = seen;
    any = true;
  }
  if (any) insert(key, corrected);
}

void ProbeCache::save() const {
  if (file_.empty() || changed_.empty()) return;
  // Read again: another run may have added what it measured.
  nlohmann::json all = read_cache_file(file_);
  for (const auto& [key, seconds] : changed_) all[machine_ + key] = to_json(seconds);
  write_cache_file(file_, all);
}

void correct_cache(const std::string& file, const std::vector<std::string>& keys,
                   const std::vector<LayerSeconds>& trained) {
  if (file.empty()) return;
  std::map<std::string, std::vector<LayerSeconds>> by_key;
  for (std::size_t layer = 0; layer < keys.size() && layer < trained.size(); ++layer)
    by_key[keys[layer]].push_back(trained[layer]);
  ProbeCache cache(file);
  for (const auto& [key, layers] : by_key) cache.correct(key, mean_of(layers));
  cache.save();
}

std::string default_cache_file(const std::string& name) {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::string(cache) + "/strata/" + name;
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.cache/strata/" + name;
  return "";
}

nlohmann::json read_cache_file(const std::string& file) {
  if (file.empty()) return nlohmann::json::object();
  std::ifstream stream(file);
  nlohmann::json json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json::object();
}

void write_cache_file(const std::string& file, const nlohmann::json& json) {
  if (file.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
  // Written to another file and renamed, because another run may be reading.
  const std::string temporary = file + "." + std::to_string(::getpid());
  std::ofstream stream(temporary);
  if (stream << json.dump(1) << '\n' << std::flush)
    std::filesystem::rename(temporary, file, ignored);
  else
    std::filesystem::remove(temporary, ignored);
}

}  // namespace strata
