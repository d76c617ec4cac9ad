/// Finds the tensors of a Hugging Face folder that hold one of our weights.
///
/// A file's tensor holds rows of our weight, all columns of each, perhaps with rows and columns
/// exchanged; the other dimensions of a weight count as columns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strata/models/decoder_options.h"

namespace strata {

struct NamedState;

struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< in the file
  std::int64_t row_begin = 0;       ///< of our weight
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool transposed = false;  ///< [columns, rows] in the file
};

/// `weight`: only its name and shape count. Null model: every tensor is under its own name.
std::vector<FileTensor> file_tensors(const DecoderOptions* model, const NamedState& weight);

}  // namespace strata
