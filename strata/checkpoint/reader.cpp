// The files of a manifest must lie in its own folder: plain names, no links.
#include "strata/checkpoint/reader.h"

#include <filesystem>

#include "strata/base/error_source.h"
#include "strata/base/json_document.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/models/hugging_face.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

const FileUse kCheckpointUse{.operation = "checkpoint.open",
                             .fix = "resume from another checkpoint"};
const FileUse kPretrainedUse{.operation = "checkpoint.open",
                             .fix = "restore the folder, with its weights as safetensors"};

constexpr ErrorSource kCheckpointErrors{"checkpoint.open"};

// Removes the trailing slash that a shell completes: "a/b/" is the folder "b" of "a".
std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// The checkpoint that `path` names; "" for none.
std::string resolve(const std::string& path) {
  const std::string name = fs::path(path).filename();
  if (is_unfinished(name)) {
    throw kCheckpointErrors.user(path, "this save was not finished",
                                 "a complete checkpoint, step-NNNNNNNN", name,
                                 "name its parent folder: then the latest complete one is used");
  }
  if (name_exists(path + "/" + kManifestName)) return path;
  const std::vector<std::string> complete = list_checkpoints(path);
  return complete.empty() ? "" : complete.back();
}

}  // namespace

CheckpointReader CheckpointReader::open(const std::string& input) {
  const std::string path = without_slash(input);
  CheckpointReader reader;
  reader.folder_ = resolve(path);
  if (reader.folder_.empty()) {
    if (is_pretrained_model(path)) {
      reader.folder_ = path;
      reader.pretrained_ = open_model_texts(path, kPretrainedUse);
      for (auto& file : open_pretrained_weights(path)) reader.add(std::move(file));
      return reader;
    }
    throw kCheckpointErrors.user(
        path.empty() ? "(an empty path)" : path, "there is no complete checkpoint here",
        "a manifest.json, a folder step-NNNNNNNN with one, a config.json with weights, or a GGUF "
        "file",
        name_exists(path) ? "none of them" : "no such path",
        "name a checkpoint or the folder that train.checkpoint_folder named");
  }
  const std::string manifest_path = reader.folder_ + "/" + kManifestName;
  reader.manifest_ =
      parse_manifest(read_file(manifest_path, kCheckpointUse, kMaxJsonBytes), manifest_path);
  for (const auto& [name, digest] : reader.manifest_.files) {
    const std::string file_path = reader.folder_ + "/" + name;
    if (name.ends_with(".safetensors")) {
      reader.add(std::make_shared<SafetensorsFile>(SafetensorsFile::open(file_path, &digest)));
    } else {
      VerifiedFile::open(file_path, kCheckpointUse, &digest);  // checks its size
    }
  }
  return reader;
}

void CheckpointReader::add(std::shared_ptr<const TensorFile> file) {
  for (const std::string& tensor : file->names()) file_of_[tensor] = files_.size();
  files_.push_back(std::move(file));
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const TensorFile& CheckpointReader::file_of(const std::string& tensor) const {
  const auto found = file_of_.find(tensor);
  if (found != file_of_.end()) return *files_[found->second];
  throw kCheckpointErrors.user(
      folder_, "the checkpoint holds no tensor of this name", tensor,
      std::to_string(file_of_.size()) + " others",
      "load it with the model and optimizer that its manifest or config.json names");
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

const ChunkDigest* CheckpointReader::digest_of(const std::string& name) const {
  for (const ManifestFile& file : manifest_.files)
    if (file.name == name) return &file.digest;
  return nullptr;
}

std::string CheckpointReader::config_json() const {
  if (pretrained_) return pretrained_->text(kConfigName);
  return VerifiedFile::open(folder_ + "/" + kConfigName, kCheckpointUse, digest_of(kConfigName))
      ->text(kMaxJsonBytes);
}

std::string CheckpointReader::text(const std::string& name) const {
  const ChunkDigest* digest = digest_of(name);
  if (digest == nullptr) return "";
  return VerifiedFile::open(folder_ + "/" + name, kCheckpointUse, digest)->text(kMaxJsonBytes);
}

CheckpointModel CheckpointReader::model() const {
  if (!manifest_.network.empty()) return CheckpointModel(manifest_.network);
  return decoder();
}

DecoderOptions CheckpointReader::decoder() const {
  if (!manifest_.network.empty())
    throw kCheckpointErrors.user(folder_, "the checkpoint holds no model of text",
                                 "a GPT or a Llama", manifest_.network,
                                 "take the checkpoint of one");
  return without_derived_sizes(
      manifest_.model
          ? *manifest_.model
          : read_hugging_face_config(config_json(), pretrained_ ? pretrained_->place(kConfigName)
                                                                : folder_ + "/" + kConfigName));
}

std::string CheckpointReader::tokenizer() const {
  if (pretrained_) return pretrained_->has(kTokenizerName) ? folder_ : "";
  if (digest_of(kTokenizerName) == nullptr) {
    // A path belongs to the machine that trained.
    return tokenizer_kind(manifest_.tokenizer) == TokenizerKind::kFile ? "" : manifest_.tokenizer;
  }
  const std::string config = folder_ + "/" + kTokenizerConfigName;
  if (digest_of(kTokenizerConfigName) == nullptr && name_exists(config))
    throw kCheckpointErrors.user(config,
                                 "a file that the manifest doesn't list would change the tokenizer",
                                 "no such file", "one", "remove it");
  for (const char* name : {kTokenizerName, kTokenizerConfigName})
    if (const ChunkDigest* digest = digest_of(name))
      VerifiedFile::open(folder_ + "/" + name, kCheckpointUse, digest)->verify_all();
  return folder_;
}

void CheckpointReader::verify_all() const {
  for (const auto& [name, digest] : manifest_.files)
    VerifiedFile::open(folder_ + "/" + name, kCheckpointUse, &digest)->verify_all();
}

}  // namespace strata
