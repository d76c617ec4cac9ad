#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "strata/base/errors.h"
#include "strata/base/mapped_file.h"
#include "strata/models/hugging_face.h"
#include "strata/train/checkpoint.h"
#include "strata/train/checkpoint_copy.h"
#include "strata/train/checkpoint_folder.h"
#include "strata/train/named_state.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOperation = "train.open_checkpoint";
constexpr const char* kFix = "resume from another checkpoint";
constexpr const char* kPretrainedFix = "restore the folder, with its weights as safetensors";
constexpr const char* kModelName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

[[noreturn]] void refuse(const std::string& where, const std::string& what,
                         const std::string& expected, const std::string& got,
                         const std::string& fix = kFix) {
  throw UserError({kOperation, where, what, expected, got, fix});
}

// Without the slash at the end that a shell completes: "a/b/" is the folder "b" of "a".
std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string resolve(const std::string& path) {
  const std::string name = fs::path(path).filename();
  if (is_unfinished(name)) {
    refuse(path, "this save was not finished", "a complete checkpoint, step-NNNNNNNN", name,
           "name its parent folder: then the latest complete one is taken");
  }
  if (fs::exists(path + "/" + kManifestName)) return path;
  const std::vector<std::string> complete = list_checkpoints(path);
  if (complete.empty()) {
    refuse(path, "there is no complete checkpoint here",
           "a manifest.json, or a folder step-NNNNNNNN with one",
           fs::exists(path) ? "neither" : "no such folder",
           "name a checkpoint or the folder that train.checkpoint_folder named");
  }
  return complete.back();
}

void require_size(const std::string& path, const ChunkDigest& expected) {
  std::error_code none;
  if (!fs::is_regular_file(path, none))
    refuse(path, "a file of the checkpoint is missing", "the file", "none");
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path, none));
  if (bytes != expected.bytes) {
    refuse(path,
           bytes < expected.bytes ? "a file of the checkpoint is truncated"
                                  : "a file of the checkpoint has grown",
           std::to_string(expected.bytes) + " bytes", std::to_string(bytes));
  }
}

std::string text_of(const std::string& path) {
  const auto file = MappedFile::open(path, kOperation, kFix);
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

// The names of the files that a Hugging Face folder's weights are in.
std::set<std::string> weight_files(const std::string& folder) {
  const std::string index = folder + "/" + kIndexName;
  if (!fs::exists(index)) return {kModelName};
  const auto fields = nlohmann::json::parse(text_of(index), nullptr, false);
  std::set<std::string> files;
  try {
    for (const auto& [name, file] : fields.at("weight_map").items())
      files.insert(file.get<std::string>());
  } catch (const nlohmann::json::exception& error) {
    refuse(index, "the index of the weights is damaged", "{\"weight_map\": {name: file}}",
           error.what(), kPretrainedFix);
  }
  return files;
}

}  // namespace

CheckpointReader CheckpointReader::open(const std::string& path) {
  CheckpointReader reader;
  reader.folder_ = resolve(without_slash(path));
  const std::string manifest_path = reader.folder_ + "/" + kManifestName;
  reader.manifest_ = parse_manifest(text_of(manifest_path), manifest_path);
  for (const auto& [name, digest] : reader.manifest_.files) {
    const std::string file_path = reader.folder_ + "/" + name;
    require_size(file_path, digest);
    if (name.ends_with(".safetensors")) reader.add(SafetensorsFile::open(file_path, &digest));
  }
  return reader;
}

CheckpointReader CheckpointReader::open_pretrained(const std::string& folder) {
  CheckpointReader reader;
  reader.folder_ = without_slash(folder);
  reader.pretrained_ = true;
  for (const std::string& name : weight_files(reader.folder_)) {
    const std::string path = reader.folder_ + "/" + name;
    if (!fs::exists(path))
      refuse(path, "a file of weights is missing", "the file", "none", kPretrainedFix);
    reader.add(SafetensorsFile::open(path));
  }
  return reader;
}

void CheckpointReader::add(SafetensorsFile file) {
  for (const std::string& tensor : file.names()) file_of_[tensor] = files_.size();
  files_.push_back(std::move(file));
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const SafetensorsFile& CheckpointReader::file_of(const std::string& tensor) const {
  const auto found = file_of_.find(tensor);
  if (found != file_of_.end()) return files_[found->second];
  refuse(folder_, "the checkpoint holds no tensor of this name", tensor,
         std::to_string(file_of_.size()) + " others",
         "load it with the model and optimizer that its manifest's recipe or config.json names");
}

at::Tensor CheckpointReader::tensor(const std::string& name) const {
  return file_of(name).tensor(name);
}

void CheckpointReader::read_runs(const NamedState& state,
                                 const std::vector<FileTensor>& parts) const {
  for (FileTensor part : parts) {
    if (const std::string bare = without_model_prefix(part.name);
        pretrained_ && !contains(part.name) && contains(bare))
      part.name = bare;
    copy_runs(file_of(part.name), part, state);
  }
}

std::string CheckpointReader::config_json() const {
  const std::string path = folder_ + "/config.json";
  for (const auto& [name, digest] : manifest_.files)
    if (name == "config.json")
      ChunkVerifier(MappedFile::open(path, kOperation, kFix), digest).require_all();
  return text_of(path);
}

void CheckpointReader::verify_all() const {
  for (const auto& [name, digest] : manifest_.files) {
    if (digest.bytes == 0) continue;
    ChunkVerifier(MappedFile::open(folder_ + "/" + name, kOperation, kFix), digest).require_all();
  }
}

bool is_pretrained(const std::string& path) {
  const std::string folder = without_slash(path);
  return !fs::exists(folder + "/" + kManifestName) && fs::exists(folder + "/config.json");
}

}  // namespace strata
