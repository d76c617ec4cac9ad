/// Reads the weights of a GGUF file as fp32, under the names that Hugging Face's files have.
///
/// Shapes   those of Hugging Face, except that GPT-2's matrices are [out, in], not [in, out].
/// Rows     llama files interleave the two halves of each head of queries and keys; the rows are
///          returned in Hugging Face's order.
/// Threads  const, any thread.
/// Cost     read() reads and widens the blocks that hold the elements, at most 64 KiB at a time.
/// Errors   UserError that names the file and the tensor: a type that is not supported, a tensor
///          that the architecture does not have, an architecture that is not supported.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/pretrained/gguf_file.h"

namespace strata {

class GgufWeights {
 public:
  explicit GgufWeights(std::shared_ptr<const GgufFile> file);

  const std::string& path() const { return file_->path(); }
  std::vector<std::string> names() const;
  const std::vector<std::int64_t>& shape(const std::string& name) const;

  /// Fills `out` with elements from `begin` on.
  void read(const std::string& name, std::int64_t begin, std::span<float> out) const;

 private:
  struct Weight {
    const GgufTensor* tensor;
    std::int64_t interleaved_rows;  // rows of a head whose halves are interleaved; 0: none are
  };
  const Weight& weight(const std::string& name) const;

  std::shared_ptr<const GgufFile> file_;
  std::map<std::string, Weight> weights_;
};

/// Fills `out` with elements of the tensor from `begin` on, in the file's order of rows. The type
/// must be supported.
void read_elements(const GgufFile& file, const GgufTensor& tensor, std::int64_t begin,
                   std::span<float> out);

}  // namespace strata
