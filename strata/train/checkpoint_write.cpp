#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
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

ChunkDigest write_text(const std::string& path, const std::string& text) {
  DurableFile file(path);
  ChunkDigester digester;
  file.write(text);
  digester.add(std::as_bytes(std::span(text)));
  file.close();
  return digester.finish();
}

// What a file's writer tells the one that commits: its checksums, and the tensors in it.
std::string note_path(const std::string& folder, const std::string& file) {
  return folder + "/" + file + ".note";
}

ordered_json note_of(const ChunkDigest& digest, std::span<const NamedTensor> tensors) {
  ordered_json note = {{"bytes", digest.bytes},
                       {"checksums", digest.checksums},
                       {"tensors", ordered_json::object()}};
  for (const auto& [name, tensor] : tensors) note["tensors"][name] = tensor.nbytes();
  return note;
}

ordered_json read_note(const std::string& folder, const std::string& file) {
  std::ifstream stream(note_path(folder, file));
  ordered_json note = ordered_json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!note.is_object()) {
    throw InternalError({.operation = kOperation,
                         .where = folder,
                         .what = "a file was not written before the commit",
                         .expected = file,
                         .got = "no such file",
                         .fix = ""});
  }
  return note;
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

// Collects the notes of all files.
class Commit {
 public:
  Commit(std::string folder, CheckpointFiles files) : folder_(std::move(folder)) {
    for (int file = 0; file < files.model; ++file)
      add(shard_name("model", file, files.model), weights_);
    for (int file = 0; file < files.optimizer; ++file)
      add(shard_name("optimizer", file, files.optimizer), others_);
    sharded_ = files.model > 1;
  }

  std::vector<ManifestFile> write_rest(const std::string& config_json,
                                       const std::map<std::string, std::string>& texts) {
    for (const ManifestFile& file : files_)
      on_disk(folder_, [&] { return fs::remove(note_path(folder_, file.name)); });
    add_text("config.json", config_json);
    for (const auto& [name, text] : texts) add_text(name, text);
    if (sharded_) add_text("model.safetensors.index.json", index());
    return std::move(files_);
  }

 private:
  using FileOfTensor = std::map<std::string, std::string>;

  void add(const std::string& file, FileOfTensor& file_of) {
    const ordered_json note = read_note(folder_, file);
    files_.push_back({file, {.bytes = note["bytes"], .checksums = note["checksums"]}});
    for (const auto& [name, bytes] : note["tensors"].items()) {
      if (weights_.contains(name) || others_.contains(name)) {
        throw InternalError({.operation = kOperation,
                             .where = folder_,
                             .what = "two files hold a tensor of the same name",
                             .expected = "one",
                             .got = name,
                             .fix = ""});
      }
      file_of.emplace(name, file);
      if (&file_of == &weights_) weight_bytes_ += bytes.get<std::int64_t>();
    }
  }

  void add_text(const std::string& name, const std::string& text) {
    files_.push_back({name, write_text(folder_ + "/" + name, text)});
  }

  std::string index() const {
    const ordered_json fields = {{"metadata", {{"total_size", weight_bytes_}}},
                                 {"weight_map", weights_}};
    return fields.dump(2) + "\n";
  }

  std::string folder_;
  std::vector<ManifestFile> files_;
  FileOfTensor weights_;
  FileOfTensor others_;
  std::int64_t weight_bytes_ = 0;
  bool sharded_ = false;
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::string folder, std::int64_t step, CheckpointFiles files)
    : folder_(std::move(folder)),
      step_(step),
      files_(files),
      final_folder_(folder_ + "/" + checkpoint_folder_name(step)),
      partial_folder_(unfinished(final_folder_)) {
  STRATA_CHECK(step >= 0 && files.model > 0 && files.optimizer >= 0 && !folder_.empty(),
               kOperation);
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

void CheckpointWriter::write(const std::string& name, std::span<const NamedTensor> tensors) const {
  const ChunkDigest digest = write_safetensors(partial_folder_ + "/" + name, tensors);
  write_text(note_path(partial_folder_, name), note_of(digest, tensors).dump());
}

void CheckpointWriter::write_model(int file, std::span<const NamedTensor> tensors) const {
  STRATA_CHECK(file >= 0 && file < files_.model, kOperation);
  write(shard_name("model", file, files_.model), tensors);
}

void CheckpointWriter::write_optimizer(int file, std::span<const NamedTensor> tensors) const {
  STRATA_CHECK(file >= 0 && file < files_.optimizer, kOperation);
  write(shard_name("optimizer", file, files_.optimizer), tensors);
}

std::string CheckpointWriter::commit(Manifest manifest, const std::string& config_json,
                                     const std::map<std::string, std::string>& texts) const {
  manifest.step = step_;
  manifest.files = Commit(partial_folder_, files_).write_rest(config_json, texts);
  write_text(partial_folder_ + "/" + kManifestName, write_manifest(manifest));
  sync_folder(partial_folder_);
  if (on_disk(final_folder_, [&] { return fs::exists(final_folder_); })) {
    replace_folder(partial_folder_, final_folder_);
  } else {
    rename_durably(partial_folder_, final_folder_);
  }
  return final_folder_;
}

void CheckpointWriter::discard() const noexcept {
  std::error_code none;
  fs::remove_all(partial_folder_, none);
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
