/// Finds the tensors of files that hold one of our weights, copies the parts that a rank needs, and
/// splits whole weights for files.
///
/// Shapes  a file's tensor holds rows of our weight, all columns of each, possibly transposed; the
///         other dimensions of a weight count as columns. 16-bit floats in the file widen to fp32;
///         other dtypes must be equal.
/// Cost    the bytes of the runs; for transposed tensors all bytes of their columns, in blocks.
/// Errors  UserError that names the file and the tensor: another shape or dtype, damaged bytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/tensor_file.h"
#include "strata/models/decoder_options.h"

namespace strata {

struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< in the file
  std::int64_t row_begin = 0;       ///< in our weight
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool transposed = false;  ///< [columns, rows] in the file
};

/// The names that weights have in files; by default their own.
struct FileNames {
  const DecoderOptions* decoder = nullptr;                     ///< Hugging Face's for this model
  const std::map<std::string, std::string>* others = nullptr;  ///< by a weight's own name
};

/// `weight`: only its name and shape are used.
std::vector<FileTensor> file_tensors(const FileNames& names, const NamedState& weight);

/// Reads those runs of `state.local` that lie in `part`, whose `transposed` holds for files that
/// are not outputs_first().
void copy_runs(const TensorFile& file, const FileTensor& part, const NamedState& state);

/// The part of `whole` that the file's tensor holds; a view unless it is transposed.
at::Tensor part_of(const at::Tensor& whole, const FileTensor& part);

}  // namespace strata
