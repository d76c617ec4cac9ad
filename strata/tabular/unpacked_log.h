/// Opens a log of samples, compressed by gzip or not. A compressed log is unpacked once, into a
/// nameless temporary file that disappears with the program, so that any line can be read at any
/// time.
///
/// Source  gzip: RFC 1952; several compressed parts may follow each other, as after `cat a.gz
///         b.gz`.
/// Cost    a compressed log: one pass over it, and the space of its text in the folder for
///         temporary files (TMPDIR, or /tmp), of which at least the larger of a gigabyte and a
///         tenth stays free.
/// Errors  UserError: as RandomAccessFile; a name that ends with .gz although the bytes are not
///         gzip; a compressed log that is damaged, truncated, or does not fit when unpacked.
#pragma once

#include <memory>
#include <string>

#include "strata/base/random_access_file.h"

namespace strata {

std::shared_ptr<const RandomAccessFile> open_log(const std::string& path, const FileUse& use);

/// The name of a compressed file without .gz.
std::string unpacked_name(const std::string& path);

}  // namespace strata
