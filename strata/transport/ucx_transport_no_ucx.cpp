// Replaces ucx_transport.cpp if the library is missing.
#include "strata/base/errors.h"
#include "strata/transport/transport.h"

namespace strata {

bool ucx_is_available() { return false; }

std::unique_ptr<Transport> connect_ucx(Bootstrap&) {
  throw UserError(
      {.operation = "transport.ucx",
       .where = "mesh.transport",
       .what = "this build has no UCX",
       .expected = "a build with UCX",
       .got = "ucx",
       .fix = "apt-get install libucx-dev and build again, or set mesh.transport=sockets"});
}

}  // namespace strata
