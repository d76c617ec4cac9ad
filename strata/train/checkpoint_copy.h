/// Copies the parts that a rank needs of a tensor in a file, and splits whole weights for files.
///
/// Shapes  see checkpoint_names.h; 16-bit floats in the file widen to fp32, other dtypes must
/// agree. Cost    the bytes of the runs; transposed tensors by cache lines of 16 rows. Errors
/// UserError that names the file and the tensor: another shape or dtype, damaged bytes.
#pragma once

#include "strata/train/checkpoint_names.h"
#include "strata/train/safetensors.h"

namespace strata {

/// Fills those runs of `state.local` that lie in `part`.
void copy_runs(const SafetensorsFile& file, const FileTensor& part, const NamedState& state);

/// `whole` as the file shall hold it; a view where rows aren't exchanged with columns.
at::Tensor part_of(const at::Tensor& whole, const FileTensor& part);

}  // namespace strata
