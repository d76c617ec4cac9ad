/// Reads the files of mutual TLS, which encrypts rows between machines.
///
/// Errors  UserError: a file that is missing, cannot be read, is not PEM or does not fit the
///         others; an address beyond the machine without TLS.
#pragma once

#include <string>

#include "strata/transport/server_address.h"

namespace strata {

/// Files in PEM; all or none.
struct TlsFiles {
  std::string certificate, key;
  std::string authority;  ///< that signed the other side's certificate
  bool on() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
};

/// The files that STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and STRATA_TLS_AUTHORITY name. Each
/// process has its own files, so the recipe does not name them.
TlsFiles tls_from_environment();

/// Their contents: certificates, and the key of the first.
struct TlsTexts {
  std::string certificate, key, authority;
};
TlsTexts read_tls(const TlsFiles& tls);

/// Parses the address in `text`. Refuses one that is neither loopback nor a unix socket if there is
/// no TLS.
ServerAddress require_tls_beyond_machine(const std::string& text, const TlsFiles& tls,
                                         FreePort free_port = FreePort::kNo);

}  // namespace strata
