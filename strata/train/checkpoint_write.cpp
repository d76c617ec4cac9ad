#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strata/base/errors.h"
#include "strata/data/checksum.h"
#include "strata/train/checkpoint.h"
#include "strata/train/checkpoint_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kOperation = "train.save_checkpoint";

// Runs an action of the file system and gives its errors our shape.
template <typename Action>
auto on_disk(const std::string& path, Action action) {
  try {
    return action();
  } catch (const fs::filesystem_error& error) {
    throw SystemError({.operation = kOperation,
                       .where = path,
                       .what = "the folder cannot be changed",
                       .expected = "",
                       .got = error.code().message(),
                       .fix = "check that it exists, is writable and has space"});
  }
}

void remove_folder(const std::string& folder) {
  on_disk(folder, [&] { return fs::remove_all(folder); });
}

FileDigest write_text(const std::string& path, const std::string& text) {
  DurableFile file(path);
  file.write(text);
  return file.close();
}

// What a shard's writer tells the one that commits: files with checksums, and the tensors in them.
std::string notes_path(const std::string& folder, int shard) {
  return folder + "/shard-" + std::to_string(shard) + ".json";
}

ordered_json note_of(const std::string& name, const FileDigest& digest,
                     std::span<const NamedTensor> tensors) {
  ordered_json note = {{"name", name},
                       {"bytes", digest.bytes},
                       {"checksum", digest.checksum},
                       {"tensors", ordered_json::object()}};
  for (const auto& [tensor_name, tensor] : tensors) note["tensors"][tensor_name] = tensor.nbytes();
  return note;
}

ordered_json read_notes(const std::string& folder, int shard) {
  std::ifstream file(notes_path(folder, shard));
  ordered_json notes = ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!notes.is_array()) {
    throw InternalError({.operation = kOperation,
                         .where = folder,
                         .what = "a shard was not written before the commit",
                         .expected = notes_path(folder, shard),
                         .got = "no such file",
                         .fix = ""});
  }
  return notes;
}

// Puts a complete folder in the place of an older one of the same name, in one move where the file
// system can, else in two.
void replace_folder(const std::string& fresh, const std::string& folder) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(fs::path(folder).parent_path());
    remove_folder(fresh);
    return;
  }
  const std::string old = folder + "0.partial";  // a name that the next save removes
  rename_durably(folder, old);
  rename_durably(fresh, folder);
  remove_folder(old);
}

// Collects the notes of all shards.
class Commit {
 public:
  Commit(std::string folder, int num_shards) : folder_(std::move(folder)), num_shards_(num_shards) {
    for (int shard = 0; shard < num_shards; ++shard) {
      for (const ordered_json& note : read_notes(folder_, shard)) add(note);
    }
  }

  std::vector<ManifestFile> write_rest(const std::string& config_json) {
    add_text("config.json", config_json);
    if (num_shards_ > 1) add_text("model.safetensors.index.json", index());
    for (int shard = 0; shard < num_shards_; ++shard) {
      on_disk(folder_, [&] { return fs::remove(notes_path(folder_, shard)); });
    }
    return std::move(files_);
  }

 private:
  void add(const ordered_json& note) {
    const std::string file = note["name"];
    files_.push_back({file, {.bytes = note["bytes"], .checksum = note["checksum"]}});
    for (const auto& [name, bytes] : note["tensors"].items()) {
      if (!file_of_.emplace(name, file).second) {
        throw InternalError({.operation = kOperation,
                             .where = folder_,
                             .what = "two shards hold a tensor of the same name",
                             .expected = "one",
                             .got = name,
                             .fix = ""});
      }
      if (file.starts_with("model")) model_bytes_ += bytes.get<std::int64_t>();
    }
  }

  void add_text(const std::string& name, const std::string& text) {
    files_.push_back({name, write_text(folder_ + "/" + name, text)});
  }

  std::string index() const {
    ordered_json weight_map = ordered_json::object();
    for (const auto& [name, file] : file_of_) {
      if (file.starts_with("model")) weight_map[name] = file;
    }
    const ordered_json fields = {{"metadata", {{"total_size", model_bytes_}}},
                                 {"weight_map", weight_map}};
    return fields.dump(2) + "\n";
  }

  std::string folder_;
  int num_shards_;
  std::vector<ManifestFile> files_;
  std::map<std::string, std::string> file_of_;
  std::int64_t model_bytes_ = 0;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string folder, std::int64_t step, int num_shards)
    : folder_(std::move(folder)),
      step_(step),
      num_shards_(num_shards),
      final_folder_(folder_ + "/" + checkpoint_folder_name(step)),
      partial_folder_(unfinished(final_folder_)) {
  STRATA_CHECK(step >= 0 && num_shards > 0 && !folder_.empty(), kOperation);
}

void CheckpointWriter::prepare() const {
  on_disk(folder_, [&] { fs::create_directories(folder_); });
  std::vector<std::string> stale;
  on_disk(folder_, [&] {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      if (is_unfinished(entry.path().filename())) stale.push_back(entry.path());
    }
  });
  for (const std::string& folder : stale) remove_folder(folder);
  on_disk(partial_folder_, [&] { fs::create_directory(partial_folder_); });
}

void CheckpointWriter::write_shard(int shard, std::span<const NamedTensor> model,
                                   std::span<const NamedTensor> optimizer) const {
  STRATA_CHECK(shard >= 0 && shard < num_shards_, kOperation);
  ordered_json notes = ordered_json::array();
  const auto write = [&](const std::string& kind, std::span<const NamedTensor> tensors) {
    const std::string name = shard_name(kind, shard, num_shards_);
    notes.push_back(
        note_of(name, write_safetensors(partial_folder_ + "/" + name, tensors), tensors));
  };
  write("model", model);
  if (!optimizer.empty()) write("optimizer", optimizer);
  write_text(notes_path(partial_folder_, shard), notes.dump());
}

std::string CheckpointWriter::commit(Manifest manifest, const std::string& config_json) const {
  manifest.step = step_;
  manifest.files = Commit(partial_folder_, num_shards_).write_rest(config_json);
  write_text(partial_folder_ + "/" + kManifestName, write_manifest(manifest));
  sync_folder(partial_folder_);
  if (on_disk(final_folder_, [&] { return fs::exists(final_folder_); })) {
    replace_folder(partial_folder_, final_folder_);
  } else {
    rename_durably(partial_folder_, final_folder_);
  }
  return final_folder_;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::map<std::int64_t, std::string> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::optional<std::int64_t> step = step_of_folder_name(entry.path().filename());
    if (step && fs::exists(entry.path() / kManifestName, none)) found[*step] = entry.path();
  }
  std::vector<std::string> folders;
  for (const auto& [step, path] : found) folders.push_back(path);
  return folders;
}

void prune_checkpoints(const std::string& folder, std::int64_t keep) {
  const std::vector<std::string> all = list_checkpoints(folder);
  if (keep <= 0) return;
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    rename_durably(all[i], unfinished(all[i]));
    remove_folder(unfinished(all[i]));
  }
}

}  // namespace strata
