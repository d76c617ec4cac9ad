/// Finds out whether TLS is the reason that gRPC cannot reach a server: gRPC reports a refused
/// certificate and a dead server alike, as a closed socket.
///
/// The probe repeats the handshake with OpenSSL. In TLS 1.3 a client completes its part before the
/// server checks the client's certificate. A server that accepts the certificate answers with a
/// ticket, and a server that refuses it closes the connection without sending a byte.
///
/// Threads  any.
/// Cost     two connections, up to a few seconds each if no server answers.
#pragma once

#include <string>

#include "strata/rowserver/wire/tls_files.h"
#include "strata/transport/server_address.h"

namespace strata {

/// The reason that client and server reject each other; kNothing also if no server answers.
enum class TlsObjection {
  kNothing,
  kServerHasTls,  ///< and `tls` is off
  kServerClosed,  ///< it refuses the certificate
};

/// Requires the same result twice, because a server may die during a handshake.
TlsObjection find_tls_objection(const ServerAddress& address, const TlsFiles& tls);

}  // namespace strata
