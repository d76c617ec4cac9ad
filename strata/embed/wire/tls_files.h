/// Names the files of mutual TLS, which whoever leaves the machine with rows needs, and says what the address of a
/// server is.
///
/// Errors  UserError: a file that is missing or cannot be read; an address beyond the machine without TLS.
#pragma once

#include <string>

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

/// Their contents.
struct TlsTexts {
  std::string certificate, key, authority;
};
TlsTexts read_tls(const TlsFiles& tls);

/// HOST:PORT or unix:PATH.
bool is_server_address(const std::string& text);

/// Loopback and unix sockets do without. Refuses what is no HOST:PORT or unix:PATH, too.
void require_tls_beyond_machine(const std::string& address, const TlsFiles& tls);

}  // namespace strata
