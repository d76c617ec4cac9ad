// Folders of other programs may contain links, as the cache of Hugging Face's hub does, but their
// index must list plain file names.
#include "strata/checkpoint/tensor_file.h"

#include <ATen/ops/empty.h>

#include <set>

#include "strata/base/errors.h"
#include "strata/base/json_document.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/device/device.h"
#include "strata/pretrained/gguf_weights.h"
#include "strata/pretrained/model_texts.h"

namespace strata {
namespace {

constexpr const char* kModelName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

// Widens all tensors to fp32.
class GgufTensors : public TensorFile {
 public:
  explicit GgufTensors(const std::string& path) : weights_(GgufFile::open(path)) {}

  const std::string& path() const override { return weights_.path(); }
  std::vector<std::string> names() const override { return weights_.names(); }
  at::ScalarType dtype(const std::string&) const override { return at::kFloat; }
  const std::vector<std::int64_t>& shape(const std::string& name) const override {
    return weights_.shape(name);
  }
  void read(const std::string& name, std::int64_t begin, std::span<std::byte> out) const override {
    weights_.read(name, begin, {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
  }
  bool outputs_first() const override { return true; }

 private:
  GgufWeights weights_;
};

std::set<std::string> weight_files(const std::string& folder) {
  const std::string index = folder + "/" + kIndexName;
  if (!name_exists(index)) return {kModelName};
  const JsonDocument document =
      JsonDocument::read(index, {.operation = "checkpoint.open",
                                 .fix = "restore the folder, with its weights as safetensors"});
  const JsonPart map = document.root().required_member("weight_map");
  std::set<std::string> files;
  for (const std::string& weight : map.keys()) {
    const std::string file = map.member(weight).text();
    if (!is_plain_name(file)) map.member(weight).refuse("a file in this folder", file);
    files.insert(file);
  }
  return files;
}

}  // namespace

at::Tensor TensorFile::tensor(const std::string& name) const {
  at::Tensor copy = at::empty(shape(name), host_options(dtype(name)));
  read(name, 0, {static_cast<std::byte*>(copy.mutable_data_ptr()), copy.nbytes()});
  return copy;
}

std::vector<std::shared_ptr<const TensorFile>> open_pretrained_weights(const std::string& path) {
  if (is_gguf(path)) return {std::make_shared<GgufTensors>(path)};
  std::vector<std::shared_ptr<const TensorFile>> files;
  for (const std::string& name : weight_files(path))
    files.push_back(std::make_shared<SafetensorsFile>(SafetensorsFile::open(path + "/" + name)));
  return files;
}

bool is_pretrained_model(const std::string& path) {
  return is_gguf(path) || name_exists(path + "/" + kConfigName);
}

}  // namespace strata
