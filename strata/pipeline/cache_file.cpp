#include "strata/pipeline/cache_file.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace strata {

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
  // Beside and renamed: another run may be reading.
  const std::string beside = file + "." + std::to_string(::getpid());
  std::ofstream stream(beside);
  if (stream << json.dump(1) << '\n' << std::flush)
    std::filesystem::rename(beside, file, ignored);
  else
    std::filesystem::remove(beside, ignored);
}

}  // namespace strata
