/// Reads named tensors from a file of any format, part by part.
///
/// Threads  const, any thread.
/// Errors   UserError that names the file and the tensor: no such tensor, damaged bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace strata {

class TensorFile {
 public:
  virtual ~TensorFile() = default;

  virtual const std::string& path() const = 0;
  virtual std::vector<std::string> names() const = 0;
  virtual at::ScalarType dtype(const std::string& name) const = 0;
  virtual const std::vector<std::int64_t>& shape(const std::string& name) const = 0;

  /// Fills `out` with elements from `begin` on.
  virtual void read(const std::string& name, std::int64_t begin,
                    std::span<std::byte> out) const = 0;

  /// Whether GPT-2's matrices are [out, in], and not [in, out] as in Hugging Face's files.
  virtual bool outputs_first() const { return false; }

  at::Tensor tensor(const std::string& name) const;  ///< a copy
};

/// The weight files of another program at `path`: a GGUF file, or a Hugging Face folder with
/// model.safetensors or its index. All tensors have Hugging Face's names.
std::vector<std::shared_ptr<const TensorFile>> open_pretrained_weights(const std::string& path);

/// Whether `path` is a model of another program: a GGUF file, or a folder with a config.json.
bool is_pretrained_model(const std::string& path);

}  // namespace strata
