/// Turns any exception into an Error, and carries Errors as text between ranks and processes.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "strata/base/errors.h"

namespace strata {

/// An Error as it is. Memory that can't be had and threads that can't be started are the system's;
/// what a file system refuses is the user's, unless the medium failed; anything else is our bug.
Error to_error(const std::exception& error);

/// Throws it as the UserError, SystemError or InternalError that it is.
[[noreturn]] void throw_error(Error error);

/// What a system call's `errno` means, as an Error of ours about `path`: the user's where another
/// path, other rights or another medium help, the system's for memory, descriptors and failures of
/// the medium.
Error file_error(const std::string& operation, const std::string& path, const std::string& what,
                 int error, const std::string& fix = "");

std::string encode_error(const Error& error);
Error decode_error(std::string_view text);  ///< InternalError where it isn't one of ours

}  // namespace strata
