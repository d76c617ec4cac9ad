#include "strata/train/checkpoint_folder.h"

#include <charconv>
#include <iomanip>
#include <sstream>

namespace strata {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".partial";

std::string padded(std::int64_t number, int digits) {
  std::ostringstream text;
  text << std::setw(digits) << std::setfill('0') << number;
  return text.str();
}

}  // namespace

std::string checkpoint_folder_name(std::int64_t step) {
  return std::string(kPrefix) + padded(step, 8);
}

std::string unfinished(const std::string& folder) { return folder + std::string(kUnfinished); }

std::optional<std::int64_t> step_of_folder_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = -1;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(begin, end, step);
  if (error != std::errc() || rest != end || step < 0) return std::nullopt;
  return step;
}

bool is_unfinished(const std::string& name) {
  return name.ends_with(kUnfinished) &&
         step_of_folder_name(name.substr(0, name.size() - kUnfinished.size())).has_value();
}

std::string shard_name(const std::string& kind, int shard, int num_shards) {
  if (num_shards == 1) return kind + ".safetensors";
  return kind + "-" + padded(shard + 1, 5) + "-of-" + padded(num_shards, 5) + ".safetensors";
}

}  // namespace strata
