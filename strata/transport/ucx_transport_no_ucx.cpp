// Replaces ucx_transport.cpp if the library is missing.
#include "strata/base/errors.h"
#include "strata/transport/transport.h"

namespace strata {

std::optional<MissingUcx> missing_ucx() {
  return MissingUcx{.reason = "this build has no UCX",
                    .fix = "apt-get install libucx-dev and build again"};
}

std::unique_ptr<Transport> connect_ucx(Bootstrap&) {
  const MissingUcx missing = *missing_ucx();
  throw SystemError({.operation = "transport.ucx",
                     .where = "mesh.transport",
                     .what = missing.reason,
                     .expected = "a build with UCX",
                     .got = "ucx",
                     .fix = missing.fix});
}

}  // namespace strata
