// The order of a commit makes it safe: every file is synced when it is closed, then the manifest,
// then the unfinished folder (the files' names); only then the folder is renamed and its parent
// synced. Nothing is removed before that.
#include "strata/checkpoint/writer.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "strata/base/durable_file.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/checkpoint/folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kSaveOperation = "checkpoint.save";

constexpr ErrorSource kSaveErrors{kSaveOperation};

// The written files in the order of their names here, each once.
std::vector<WrittenFile> in_order(const std::vector<WrittenFile>& written,
                                  const std::vector<std::string>& names,
                                  const std::string& folder) {
  std::map<std::string, const WrittenFile*> by_name;
  for (const WrittenFile& file : written) by_name[file.file.name] = &file;
  std::vector<WrittenFile> ordered;
  for (const std::string& name : names) {
    const auto found = by_name.find(name);
    if (found == by_name.end())
      throw kSaveErrors.internal(folder, "a file was not written before the commit", name,
                                 "no such file");
    ordered.push_back(*found->second);
  }
  return ordered;
}

// The index that Hugging Face's readers need if there are several files of weights.
std::string index_of(const std::vector<WrittenFile>& files) {
  std::map<std::string, std::string> file_of_weight;
  std::int64_t bytes = 0;
  for (const WrittenFile& file : files) {
    for (const auto& [weight, its_bytes] : file.tensor_bytes) {
      file_of_weight[weight] = file.file.name;
      bytes += its_bytes;
    }
  }
  const ordered_json fields = {{"metadata", {{"total_size", bytes}}},
                               {"weight_map", file_of_weight}};
  return fields.dump(2) + "\n";
}

}  // namespace

std::string encode(const std::vector<WrittenFile>& files) {
  ordered_json list = ordered_json::array();
  for (const WrittenFile& file : files) {
    list.push_back({{"name", file.file.name},
                    {"bytes", file.file.digest.bytes},
                    {"checksums", file.file.digest.checksums},
                    {"tensors", file.tensor_bytes}});
  }
  return list.dump();
}

std::vector<WrittenFile> decode_written_files(const std::string& text) {
  std::vector<WrittenFile> files;
  for (const ordered_json& entry : ordered_json::parse(text)) {
    files.push_back(
        {.file = {.name = entry.at("name"),
                  .digest = {.bytes = entry.at("bytes"), .checksums = entry.at("checksums")}},
         .tensor_bytes = entry.at("tensors")});
  }
  return files;
}

CheckpointWriter::CheckpointWriter(std::string folder, std::int64_t step, CheckpointFiles files,
                                   FileSystem& file_system)
    : folder_(std::move(folder)),
      step_(step),
      files_(files),
      file_system_(file_system),
      final_folder_(folder_ + "/" + checkpoint_folder_name(step)),
      partial_folder_(unfinished(final_folder_)) {
  STRATA_CHECK(step >= 0 && files.model > 0 && files.optimizer >= 0 && !folder_.empty(),
               kSaveOperation);
}

void CheckpointWriter::prepare() const {
  make_folders_durably(folder_, file_system_);
  std::vector<std::string> stale;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_))
    if (is_unfinished(entry.path().filename())) stale.push_back(entry.path());
  for (const std::string& folder : stale) remove_folder(folder, file_system_);
  make_folders_durably(partial_folder_, file_system_);
}

WrittenFile CheckpointWriter::write(const std::string& name,
                                    std::span<const NamedTensor> tensors) const {
  WrittenFile written{
      .file = {name, write_safetensors(partial_folder_ + "/" + name, tensors, file_system_)},
      .tensor_bytes = {}};
  for (const auto& [tensor, value] : tensors)
    written.tensor_bytes[tensor] = static_cast<std::int64_t>(value.nbytes());
  return written;
}

WrittenFile CheckpointWriter::write_model(int file, std::span<const NamedTensor> tensors) const {
  STRATA_CHECK(file >= 0 && file < files_.model, kSaveOperation);
  return write(shard_name("model", file, files_.model), tensors);
}

WrittenFile CheckpointWriter::write_optimizer(int file,
                                              std::span<const NamedTensor> tensors) const {
  STRATA_CHECK(file >= 0 && file < files_.optimizer, kSaveOperation);
  return write(shard_name("optimizer", file, files_.optimizer), tensors);
}

ManifestFile CheckpointWriter::write_text(const std::string& name, const std::string& text) const {
  DurableFile file(partial_folder_ + "/" + name, file_system_);
  ChunkDigester digester;
  file.write(text);
  digester.add(std::as_bytes(std::span(text)));
  file.close();
  return {name, digester.finish()};
}

std::string CheckpointWriter::commit(Manifest manifest, const std::vector<WrittenFile>& written,
                                     const std::string& config_json,
                                     const std::map<std::string, std::string>& texts) const {
  std::vector<std::string> weights, others;
  for (int file = 0; file < files_.model; ++file)
    weights.push_back(shard_name("model", file, files_.model));
  for (int file = 0; file < files_.optimizer; ++file)
    others.push_back(shard_name("optimizer", file, files_.optimizer));
  const std::vector<WrittenFile> models = in_order(written, weights, folder_);
  const std::vector<WrittenFile> optimizers = in_order(written, others, folder_);
  manifest.step = step_;
  manifest.files.clear();
  std::map<std::string, std::string> file_of_tensor;
  for (const auto* files : {&models, &optimizers}) {
    for (const WrittenFile& file : *files) {
      manifest.files.push_back(file.file);
      for (const auto& [tensor, bytes] : file.tensor_bytes)
        if (!file_of_tensor.emplace(tensor, file.file.name).second)
          throw kSaveErrors.internal(folder_, "two files hold a tensor of the same name", "one",
                                     tensor);
    }
  }
  manifest.files.push_back(write_text("config.json", config_json));
  for (const auto& [name, text] : texts) manifest.files.push_back(write_text(name, text));
  if (files_.model > 1)
    manifest.files.push_back(write_text("model.safetensors.index.json", index_of(models)));
  write_text(kManifestName, write_manifest(manifest));
  sync_folder(partial_folder_, file_system_);
  std::error_code none;
  if (fs::exists(final_folder_, none)) {
    // If two renames are needed, the old checkpoint temporarily has a name that the next save
    // removes.
    replace_folder_durably(partial_folder_, final_folder_, final_folder_ + "0.partial",
                           file_system_);
  } else {
    rename_durably(partial_folder_, final_folder_, file_system_);
  }
  return final_folder_;
}

void CheckpointWriter::discard() const noexcept { file_system_.remove_all(partial_folder_); }

}  // namespace strata
