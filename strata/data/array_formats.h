/// Reads the headers of array files; the first bytes choose the format.
///
/// A new format is a function and a line in the table of array_formats.cpp.
///
/// Errors  as ArrayFile; the numbers may still be missing from the file.
#pragma once

#include "strata/base/error_source.h"
#include "strata/data/array_file.h"

namespace strata {

inline constexpr ErrorSource kArrayErrors{"data.array", "write the array with numpy.save"};

ArrayHeader read_array_header(const RandomAccessFile& file);

}  // namespace strata
