/// Turns any exception into an Error, carries Errors between ranks and processes, and puts a rank in
/// front of their place.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/errors.h"

namespace strata {

/// An Error as it is. Memory that can't be had and threads that can't be started are the system's;
/// what a file system refuses is the user's, unless the medium failed; anything else is our bug.
Error to_error(const std::exception& error);

/// As the UserError, SystemError or InternalError that it is.
std::exception_ptr to_exception(const Error& error);
[[noreturn]] void throw_error(const Error& error);

/// What a system call's `errno` means, as an Error of ours about `path`: the user's where another
/// path, other rights or another medium help, the system's for memory, descriptors and failures of
/// the medium.
Error file_error(const std::string& operation, const std::string& path, const std::string& what,
                 int error, const std::string& fix = "");

std::string encode_error(const Error& error);
Error decode_error(std::string_view text);  ///< InternalError where it isn't one of ours

/// An error of one of several processes.
struct Failure {
  std::exception_ptr error;
  int precedence = 0;  ///< the lowest is reported; see Mailboxes::fail
};

std::vector<std::byte> write_failure(const Error& error, int precedence);
Failure read_failure(std::span<const std::byte> bytes);

/// The same error with `place` in front of its own.
std::exception_ptr located(const Error& error, const std::string& place);

}  // namespace strata
