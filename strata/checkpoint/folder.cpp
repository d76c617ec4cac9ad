// A checkpoint is renamed before it is removed, so that a partly removed one never looks complete.
#include "strata/checkpoint/folder.h"

#include <charconv>
#include <filesystem>
#include <iomanip>
#include <map>
#include <sstream>

#include "strata/base/durable_file.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

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

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string("/\0", 2)) == std::string::npos;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::map<std::int64_t, std::string> found;
  std::error_code none;
  for (fs::directory_iterator entry(folder, none); entry != fs::directory_iterator();
       entry.increment(none)) {
    const std::optional<std::int64_t> step = step_of_folder_name(entry->path().filename());
    if (step && fs::exists(entry->path() / kManifestName, none)) found[*step] = entry->path();
  }
  std::vector<std::string> folders;
  for (const auto& [step, path] : found) folders.push_back(path);
  return folders;
}

void prune_checkpoints(const std::string& folder, std::int64_t keep, FileSystem& files) {
  const std::vector<std::string> all = list_checkpoints(folder);
  if (keep <= 0) return;
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    rename_durably(all[i], unfinished(all[i]), files);
    remove_folder(unfinished(all[i]), files);
  }
}

CheckpointLock::CheckpointLock(const std::string& folder, FileSystem& files)
    : FolderLock(folder,
                 {.operation = "checkpoint.lock",
                  .in_use = "another run saves its checkpoints here",
                  .unwritable = "checkpoints cannot be written to this folder",
                  .fix = "wait for that run or end it, or set train.checkpoint_folder to another "
                         "folder"},
                 files) {}

}  // namespace strata
