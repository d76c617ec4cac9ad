/// Makes the errors of one operation, which a source names once.
///
///     constexpr ErrorSource kSecretErrors{"transport.secret"};
///     throw kSecretErrors.user(path, "the secret cannot be read", "a file", reason,
///                              "name a file");
///
/// Arguments come in the order in which an error prints them: where, what, expected, got, fix. An
/// error without a fix of its own has that of its source.
#pragma once

#include <string>

#include "strata/base/errors.h"

namespace strata {

struct ErrorSource {
  const char* operation;  ///< "folder.operation"
  const char* fix = "";

  UserError user(std::string where, std::string what, std::string expected, std::string got,
                 std::string own_fix = "") const;
  SystemError system(std::string where, std::string what, std::string expected, std::string got,
                     std::string own_fix = "") const;
  InternalError internal(std::string where, std::string what, std::string expected,
                         std::string got) const;
};

}  // namespace strata
