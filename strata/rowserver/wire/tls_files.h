/// Reads the files of mutual TLS, which rows need where they leave the machine.
///
/// Errors  UserError: a file that is missing, cannot be read, is none of PEM or fits none of the others; an
///         address beyond the machine without TLS.
#pragma once

#include <string>

#include "strata/rowserver/wire/server_address.h"

namespace strata {

/// Files in PEM; all or none.
struct TlsFiles {
  std::string certificate, key;
  std::string authority;  ///< that signed the other side's certificate
  bool on() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
};

/// What STRATA_TLS_CERTIFICATE, STRATA_TLS_KEY and STRATA_TLS_AUTHORITY name: each process has its own files,
/// so they are not the recipe's.
TlsFiles tls_from_environment();

/// Their contents: certificates, and the key of the first.
struct TlsTexts {
  std::string certificate, key, authority;
};
TlsTexts read_tls(const TlsFiles& tls);

/// The address in `text`. Loopback and unix sockets do without TLS, others are refused without it.
ServerAddress require_tls_beyond_machine(const std::string& text, const TlsFiles& tls,
                                         FreePort free_port = FreePort::kNo);

}  // namespace strata
