/// Translates the architectures llama, qwen2, qwen3 and gpt2 of GGUF files to Hugging Face: the
/// names of tensors, and the metadata to a config.json.
///
/// Errors  UserError that names the file and the key or tensor: another architecture; a key or a
///         tensor that asks for what these models do not have, so that ignoring it would change
///         numbers.
/// Source  convert_hf_to_gguf.py of llama.cpp writes these files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strata/pretrained/gguf_file.h"

namespace strata {

class GgufArchitecture {
 public:
  explicit GgufArchitecture(const GgufFile& file);

  /// "model.layers.3.self_attn.q_proj.weight" for "blk.3.attn_q.weight"; none for a table that
  /// follows from config.json.
  std::optional<std::string> hugging_face_name(const std::string& tensor) const;

  /// The rows of a head if the file interleaves the halves of the tensor's heads; otherwise 0.
  std::int64_t interleaved_rows(const std::string& tensor) const;

  std::string config_json() const;

 private:
  std::int64_t head_width() const;
  std::string key(const std::string& name) const { return name_ + "." + name; }

  const GgufFile& file_;
  std::string name_;  // "llama"
};

}  // namespace strata
