/// Reads a checkpoint, whatever mesh wrote it, or another program's folder in Hugging Face's
/// layout.
///
/// Threads  const, any thread.
/// Cost     open() looks at sizes and headers; reading verifies the 4 MiB chunks that it touches.
/// Errors   UserError that names the file or tensor: nothing complete there, a file missing,
///          truncated or damaged, a link in its place, a name that leaves the folder, a tensor
///          missing or of another shape or dtype.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/manifest.h"
#include "strata/checkpoint/model_description.h"
#include "strata/checkpoint/safetensors.h"

namespace strata {

class CheckpointReader {
 public:
  /// `path`: a checkpoint, or the folder that holds several (then the latest), or a folder without
  /// our manifest: config.json, and model.safetensors or its index. That has no checksums.
  static CheckpointReader open(const std::string& path);

  const std::string& folder() const { return folder_; }
  bool is_pretrained() const { return pretrained_; }      ///< another program's
  const Manifest& manifest() const { return manifest_; }  ///< empty for a pretrained folder
  CheckpointModel model() const;
  DecoderOptions decoder() const;          ///< refused where it holds another kind of model
  std::vector<std::string> names() const;  ///< of tensors, in ascending order
  bool contains(const std::string& name) const { return file_of_.contains(name); }

  at::Tensor tensor(const std::string& name) const;  ///< a copy

  /// Fills the runs of `state.local` from the tensors that hold them, reading those bytes alone.
  void read_runs(const NamedState& state, const std::vector<FileTensor>& parts) const;

  std::string config_json() const;
  std::string text(const std::string& name) const;  ///< of a further file; "" if there is none

  /// How the text of the data became tokens: bytes, none, or this folder, if it has a
  /// tokenizer.json, whose bytes are verified here; "" where nothing tells.
  std::string tokenizer() const;

  /// Reads and verifies every byte.
  void verify_all() const;

 private:
  static CheckpointReader open_pretrained(const std::string& folder);
  const SafetensorsFile& file_of(const std::string& tensor) const;
  void add(SafetensorsFile file);
  const ChunkDigest* digest_of(const std::string& name) const;  // null: none is known

  std::string folder_;
  Manifest manifest_;
  bool pretrained_ = false;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;
};

}  // namespace strata
