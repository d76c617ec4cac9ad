#include "strata/task/recommender/abandoned_runs.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "strata/base/durable_file.h"
#include "strata/base/random_access_file.h"
#include "strata/checkpoint/folder.h"

namespace strata {
namespace {

constexpr std::uint64_t kLargest = 1 << 20;
const FileUse kUse{.operation = "task.runs",
                   .fix = "remove the file: servers that have saved rows then ask for --resume"};

std::string path_in(const std::string& folder) { return folder + "/runs-without-checkpoint.json"; }

std::vector<std::uint64_t> noted(const std::string& folder) {
  const std::string path = path_in(folder);
  if (!name_exists(path)) return {};
  try {
    return nlohmann::json::parse(read_file(path, kUse, kLargest)).at("runs");
  } catch (const nlohmann::json::exception& error) {
    kUse.refuse(path, "the file is damaged", "the numbers of runs", error.what());
  }
}

}  // namespace

// The lock proves that no other run is alive in this folder. It is released again, because the
// saver takes its own.
std::vector<std::uint64_t> note_run(const std::string& folder, std::uint64_t run) {
  const CheckpointLock lock(folder);
  const std::vector<std::uint64_t> before =
      list_checkpoints(folder).empty() ? noted(folder) : std::vector<std::uint64_t>();
  std::vector<std::uint64_t> all = before;
  all.push_back(run);
  const std::string part = path_in(folder) + ".part";
  DurableFile file(part);
  file.write(nlohmann::json{{"runs", all}}.dump() + "\n");
  file.close();
  rename_durably(part, path_in(folder));
  return before;
}

void forget_runs(const std::string& folder) {
  std::error_code none;
  std::filesystem::remove(path_in(folder), none);
}

}  // namespace strata
