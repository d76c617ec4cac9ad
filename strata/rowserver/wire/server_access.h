/// Holds what authenticates a server of rows and its callers: certificates, or a secret.
///
/// Errors  UserError: as tls_files.h and transport/secret.h.
#pragma once

#include <string>
#include <utility>

#include "strata/rowserver/wire/tls_files.h"

namespace strata {

struct ServerAccess {
  ServerAccess(TlsFiles files = {}, std::string key = {})
      : tls(std::move(files)), secret(std::move(key)) {}

  TlsFiles tls;
  std::string secret;  ///< without TLS; empty: the user's own (own_secret())

  /// The secret that calls prove to know; empty with TLS, where certificates authenticate.
  std::string call_secret() const;
};

/// The TLS files and the secret that the environment names. Ignores a secret of `strata launch`,
/// which no server knows.
ServerAccess access_from_environment();

}  // namespace strata
