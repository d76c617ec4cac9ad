/// Asks a server that gRPC cannot reach whether it is because of TLS: gRPC calls a certificate that the
/// server refuses a closed socket, as it calls a server that has died.
///
/// The program shakes hands once more, with OpenSSL. In TLS 1.3 a client has done its part before the server
/// has looked at the client's certificate: a server that accepts it answers with a ticket, and one that does
/// not closes the connection without a byte.
///
/// Threads  any.
/// Cost     two connections, up to some seconds each where nothing answers.
#pragma once

#include <string>

#include "strata/rowserver/wire/server_address.h"
#include "strata/rowserver/wire/tls_files.h"

namespace strata {

/// What keeps the two from each other; kNothing also where no server answers.
enum class TlsObjection {
  kNothing,
  kServerHasTls,  ///< and `tls` is off
  kServerClosed,  ///< it refuses the certificate
};

/// The same answer twice: a server may die while it shakes hands.
TlsObjection find_tls_objection(const ServerAddress& address, const TlsFiles& tls);

}  // namespace strata
