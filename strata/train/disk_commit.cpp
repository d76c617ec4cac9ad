#include "strata/train/disk_commit.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/base/json_text.h"
#include "strata/disk/chunk_file.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kResumeOperation = "train.resume";
constexpr const char* kRankPrefix = "rank-";
constexpr std::size_t kRankDigits = 5;

const FileUse kResumeUse{.operation = kResumeOperation,
                         .fix = "resume from a checkpoint elsewhere"};

// The folders of the ranks that have committed, in rank order.
std::vector<std::string> committed_folders(const std::string& path) {
  std::vector<std::string> folders;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, none)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(kRankPrefix) && ChunkFile::exists(entry.path()))
      folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

}  // namespace

std::string to_text(const DiskCommit& commit) {
  return json_text(nlohmann::ordered_json{{"samples_seen", commit.position.samples_seen},
                                          {"loss_scale", commit.scale.scale},
                                          {"good_steps", commit.scale.good_steps},
                                          {"skipped", commit.scale.skipped},
                                          {"ranks", commit.ranks},
                                          {"first", commit.first},
                                          {"layout", commit.layout},
                                          {"recipe", commit.recipe},
                                          {"decisions", commit.decisions}});
}

DiskCommit parse_commit(std::int64_t step, const std::string& text, const std::string& where) {
  const JsonDocument document = JsonDocument::parse(text, where, kResumeUse);
  const JsonPart root = document.root();
  return {.position = {.steps_done = step,
                       .samples_seen = root.required_member("samples_seen").number()},
          .scale = {.scale = root.required_member("loss_scale").real(),
                    .good_steps = root.required_member("good_steps").number(),
                    .skipped = root.required_member("skipped").number()},
          .ranks = static_cast<int>(root.required_member("ranks").number(1, INT32_MAX)),
          .first = root.flag("first", /*otherwise=*/true),
          .layout = root.required_member("layout").text(),
          .recipe = root.required_member("recipe").text(),
          .decisions = root.required_member("decisions").text()};
}

std::string rank_folder(const std::string& path, int rank) {
  std::string number = std::to_string(rank);
  number.insert(0, kRankDigits - std::min(kRankDigits, number.size()), '0');
  return path + "/" + kRankPrefix + number;
}

bool is_first_commit(const std::string& folder, int ranks) {
  if (!ChunkFile::exists(folder)) return false;
  const std::vector<ChunkFile::Commit> commits = ChunkFile::commits(folder);
  if (commits.size() > 1) return false;
  const DiskCommit commit = parse_commit(commits[0].step, commits[0].user_text, folder);
  return commit.first && commit.ranks == ranks;
}

// A rank that has committed twice knows that all others have committed once. A rank that has rolled
// back from a second commit finds that in the text of the first.
bool holds_commits(const std::string& path) {
  const std::vector<std::string> folders = committed_folders(path);
  for (const std::string& folder : folders) {
    const std::vector<ChunkFile::Commit> commits = ChunkFile::commits(folder);
    const DiskCommit last = parse_commit(commits[0].step, commits[0].user_text, folder);
    if (commits.size() > 1 || !last.first || static_cast<int>(folders.size()) >= last.ranks)
      return true;
  }
  return false;
}

DiskCommit last_commit(const std::string& path) {
  std::int64_t last = INT64_MAX;
  const std::vector<std::string> folders = committed_folders(path);
  for (const std::string& folder : folders)
    last = std::min(last, ChunkFile::commits(folder).front().step);
  for (const std::string& folder : folders)
    for (const ChunkFile::Commit& commit : ChunkFile::commits(folder))
      if (commit.step == last) return parse_commit(commit.step, commit.user_text, folder);
  throw UserError({.operation = kResumeOperation,
                   .where = path,
                   .what = "no committed step lies here",
                   .expected = "folders rank-NNNNN with one",
                   .got = "none",
                   .fix = "name the folder that memory.disk.path named"});
}

}  // namespace strata
