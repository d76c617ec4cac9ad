/// Opens a log of samples whether gzip has packed it or not: a packed one is unpacked once, into a file
/// without a name that goes with the program, so that any line of it can be read at any time.
///
/// Source  gzip: RFC 1952; several packed parts may follow each other, as `cat a.gz b.gz` leaves them.
/// Cost    a packed log: one pass over it, and the room of its text in the folder for temporary files
///         (TMPDIR, or /tmp), of which a gigabyte or a tenth, whichever is more, stays free.
/// Errors  UserError: as RandomAccessFile; a name that ends with .gz over bytes that gzip did not write; a packed
///         log that is damaged, ends too soon, or has no room when it is unpacked.
#pragma once

#include <memory>
#include <string>

#include "strata/base/random_access_file.h"

namespace strata {

std::shared_ptr<const RandomAccessFile> open_log(const std::string& path, const FileUse& use);

/// The name without the .gz of a packed file.
std::string unpacked_name(const std::string& path);

}  // namespace strata
