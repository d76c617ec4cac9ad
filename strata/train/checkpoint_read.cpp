#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <sstream>

#include "strata/base/errors.h"
#include "strata/data/checksum.h"
#include "strata/data/mapped_file.h"
#include "strata/train/checkpoint.h"
#include "strata/train/checkpoint_folder.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOperation = "train.open_checkpoint";
constexpr const char* kFix = "resume from another checkpoint";

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

void verify(const std::string& path, const FileDigest& expected) {
  if (!fs::exists(path)) refuse(path, "a file of the checkpoint is missing", "the file", "none");
  const auto bytes = static_cast<std::int64_t>(fs::file_size(path));
  if (bytes != expected.bytes) {
    refuse(path,
           bytes < expected.bytes ? "a file of the checkpoint is truncated"
                                  : "a file of the checkpoint has grown",
           std::to_string(expected.bytes) + " bytes", std::to_string(bytes));
  }
  const std::uint64_t sum =
      bytes == 0 ? checksum({}) : checksum(MappedFile::open(path, kOperation, kFix)->bytes());
  if (sum != expected.checksum) {
    refuse(path, "a file of the checkpoint is damaged: its checksum is another",
           checksum_text(expected.checksum), checksum_text(sum));
  }
}

std::string text_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << " of " << c10::toString(tensor.scalar_type());
  return text.str();
}

}  // namespace

CheckpointReader CheckpointReader::open(const std::string& path) {
  CheckpointReader reader;
  reader.folder_ = resolve(without_slash(path));
  const std::string manifest_path = reader.folder_ + "/" + kManifestName;
  const auto manifest = MappedFile::open(manifest_path, kOperation, kFix);
  reader.manifest_ = parse_manifest(
      {reinterpret_cast<const char*>(manifest->bytes().data()), manifest->bytes().size()},
      manifest_path);
  for (const auto& [name, digest] : reader.manifest_.files) {
    const std::string file_path = reader.folder_ + "/" + name;
    verify(file_path, digest);
    if (!name.ends_with(".safetensors")) continue;
    reader.files_.push_back(SafetensorsFile::open(file_path));
    for (const std::string& tensor : reader.files_.back().names()) {
      reader.file_of_[tensor] = reader.files_.size() - 1;
    }
  }
  return reader;
}

std::vector<std::string> CheckpointReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

at::Tensor CheckpointReader::tensor(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) {
    refuse(folder_, "the checkpoint holds no tensor of this name", name,
           std::to_string(file_of_.size()) + " others",
           "load it with the model and optimizer that its manifest's recipe names");
  }
  return files_[found->second].tensor(name);
}

void CheckpointReader::read_into(const std::string& name, const at::Tensor& target) const {
  const at::Tensor source = tensor(name);
  if (source.sizes() != target.sizes() || source.scalar_type() != target.scalar_type()) {
    refuse(folder_, "'" + name + "' has another shape or dtype", text_of(target), text_of(source),
           "load it with the model and optimizer that its manifest's recipe names");
  }
  const at::NoGradGuard no_grad;
  target.copy_(source);
}

}  // namespace strata
