/// Tells an error to other processes, and puts a rank in front of its place.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "strata/base/errors.h"

namespace strata {

struct Failure {
  std::exception_ptr error;
  int precedence = 0;  ///< the lowest is reported; see Mailboxes::fail
};

std::vector<std::byte> write_failure(const Error& error, int precedence);
Failure read_failure(std::span<const std::byte> bytes);

/// The same error with `place` in front of its own.
std::exception_ptr located(const Error& error, const std::string& place);

}  // namespace strata
