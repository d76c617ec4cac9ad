/// Reads a checkpoint of any mesh, or another program's model: a Hugging Face folder or a GGUF
/// file.
///
/// Threads  const, any thread.
/// Cost     open() reads sizes and headers; reading verifies the 4 MiB chunks that it touches.
/// Errors   UserError that names the file or tensor: no complete checkpoint, a file missing,
///          truncated or damaged, a link instead of a file, a name that leaves the folder, a tensor
///          missing or of another shape or dtype.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/manifest.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/tensor_file.h"
#include "strata/pretrained/model_texts.h"

namespace strata {

class CheckpointReader {
 public:
  /// `path`: a checkpoint, a folder that holds several (the latest), or another program's model,
  /// which has no checksums: a folder with config.json, and model.safetensors or its index, or a
  /// GGUF file.
  static CheckpointReader open(const std::string& path);

  const std::string& folder() const { return folder_; }          ///< or the GGUF file
  bool is_pretrained() const { return pretrained_ != nullptr; }  ///< another program's model
  const Manifest& manifest() const { return manifest_; }         ///< empty for a pretrained model
  CheckpointModel model() const;
  DecoderOptions decoder() const;          ///< UserError if it holds another kind of model
  std::vector<std::string> names() const;  ///< names of tensors, ascending
  bool contains(const std::string& name) const { return file_of_.contains(name); }

  at::Tensor tensor(const std::string& name) const;  ///< a copy

  /// Fills the runs of `state.local` from the tensors that hold them; reads only those bytes.
  void read_runs(const NamedState& state, const std::vector<FileTensor>& parts) const;

  std::string config_json() const;
  std::string text(const std::string& name) const;  ///< of another file; "" if there is none

  /// The tokenizer of the data: bytes, none, or this folder or GGUF file, if it has one, whose
  /// bytes are verified here; "" if it is unknown.
  std::string tokenizer() const;

  /// Reads and verifies every byte.
  void verify_all() const;

 private:
  const TensorFile& file_of(const std::string& tensor) const;
  void add(std::shared_ptr<const TensorFile> file);
  const ChunkDigest* digest_of(const std::string& name) const;  // null: none is known

  std::string folder_;
  Manifest manifest_;
  std::shared_ptr<const ModelTexts> pretrained_;  // null: our checkpoint
  std::vector<std::shared_ptr<const TensorFile>> files_;
  std::map<std::string, std::size_t> file_of_;
};

}  // namespace strata
