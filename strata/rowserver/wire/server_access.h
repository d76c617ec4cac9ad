/// Says what a server of rows and those who call it know each other by: certificates, or a secret of the machine's
/// user.
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
  std::string secret;  ///< where there is no TLS; empty: that of this user (own_secret())

  /// That calls prove to know; empty with TLS, whose certificates do it.
  std::string call_secret() const;
};

/// The TLS files and the secret that the environment names; not a secret of `strata launch`, which no server knows.
ServerAccess access_from_environment();

}  // namespace strata
