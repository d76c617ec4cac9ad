// A file system that cuts the power after a number of operations. It performs them on the real disk
// and records which were not synced; lose() undoes those.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/base/durable_file.h"

namespace strata {

struct PowerCut {};

// What a power cut undoes: names that were not made durable by a sync of their folder, or only the
// unsynced bytes of files (a file system may write names first).
enum class Lost { kNamesAndBytes, kBytes };

class PowerCutFileSystem : public FileSystem {
 public:
  PowerCutFileSystem(int operations, Lost lost) : left_(operations), lost_(lost) {}

  // Also counts operations that bypass this class but belong to the same history.
  void count() {
    if (left_-- <= 0) throw PowerCut();
  }

  int create(const std::string& path) override {
    count();
    const bool fresh = !std::filesystem::exists(path);
    const int descriptor = FileSystem::create(path);
    if (descriptor < 0) return descriptor;
    path_of_[descriptor] = path;
    synced_bytes_[path] = 0;
    if (fresh) note({Change::kMade, path, ""});
    return descriptor;
  }
  ::ssize_t write(int descriptor, std::span<const std::byte> bytes) override {
    count();
    return FileSystem::write(descriptor, bytes);
  }
  int allocate(int descriptor, std::int64_t bytes) override {
    count();
    return FileSystem::allocate(descriptor, bytes);
  }
  int sync(int descriptor) override {
    count();
    const std::string& path = path_of_.at(descriptor);
    synced_bytes_[path] = std::filesystem::file_size(path);
    return 0;
  }
  int close(int descriptor) override {
    path_of_.erase(descriptor);
    return FileSystem::close(descriptor);
  }
  int make_folder(const std::string& path) override {
    count();
    const int result = FileSystem::make_folder(path);
    if (result == 0) note({Change::kMade, path, ""});
    return result;
  }
  int rename(const std::string& from, const std::string& to) override {
    count();
    std::optional<std::string> replaced;
    if (std::filesystem::is_regular_file(to)) replaced = text_of(to);
    const int result = FileSystem::rename(from, to);
    if (result != 0) return result;
    if (auto file = synced_bytes_.extract(from)) synced_bytes_[to] = file.mapped();
    for (auto& [path, bytes] : std::map(synced_bytes_))
      if (path.starts_with(from + "/")) {
        synced_bytes_[to + path.substr(from.size())] = bytes;
        synced_bytes_.erase(path);
      }
    for (Change& change : changes_)
      for (std::string* path : {&change.path, &change.to})
        if (path->starts_with(from + "/")) *path = to + path->substr(from.size());
    note({Change::kRenamed, from, to, replaced});
    return 0;
  }
  int exchange(const std::string& a, const std::string& b) override {
    count();
    if (FileSystem::exchange(a, b) != 0) return -1;
    const auto other = [&](const std::string& path) {
      if (path.starts_with(a + "/")) return b + path.substr(a.size());
      return path.starts_with(b + "/") ? a + path.substr(b.size()) : path;
    };
    std::map<std::string, std::uintmax_t> moved;
    for (const auto& [path, bytes] : synced_bytes_) moved[other(path)] = bytes;
    synced_bytes_ = moved;
    for (Change& change : changes_) change.path = other(change.path);
    note({Change::kExchanged, a, b});
    return 0;
  }
  int sync_folder(const std::string& path) override {
    count();
    std::erase_if(changes_, [&](const Change& change) {
      return std::filesystem::path(change.path).parent_path() == path;
    });
    return 0;
  }
  int remove_all(const std::string& path) override {
    count();
    std::erase_if(changes_, [&](const Change& change) {
      return change.path.starts_with(path + "/") && change.kind == Change::kMade;
    });
    return FileSystem::remove_all(path);
  }

  // Undoes all unsynced changes after the cut.
  void lose() {
    for (const auto& [path, bytes] : synced_bytes_)
      if (std::filesystem::exists(path) && std::filesystem::file_size(path) > bytes)
        std::filesystem::resize_file(path, bytes);
    if (lost_ == Lost::kBytes) return;
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
      if (change->kind == Change::kMade) std::filesystem::remove_all(change->path);
      if (change->kind == Change::kRenamed && std::filesystem::exists(change->to))
        std::filesystem::rename(change->to, change->path);
      if (change->replaced) std::ofstream(change->to, std::ios::binary) << *change->replaced;
      if (change->kind == Change::kExchanged &&
          FileSystem::exchange(change->path, change->to) != 0 &&
          std::filesystem::exists(change->to))
        std::filesystem::rename(change->to, change->path);  // the other folder is already removed
    }
  }

 private:
  struct Change {
    enum Kind { kMade, kRenamed, kExchanged } kind;
    std::string path, to;
    std::optional<std::string> replaced = {};  // the text of the file that was replaced
  };
  static std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void note(Change change) { changes_.push_back(std::move(change)); }

  std::atomic<int> left_;
  Lost lost_;
  std::vector<Change> changes_;  // of names, since the last sync of their folder
  std::map<int, std::string> path_of_;
  std::map<std::string, std::uintmax_t> synced_bytes_;
};

}  // namespace strata
