/// Brings the processes of a run together: all are there, run the same program, and are connected.
///
/// Process 0 compares what all say about themselves and tells every process the verdict, so all end
/// with the same error.
///
/// Errors  UserError: a host that has no address, processes that differ. SystemError: a port in
/// use,
///         a process that is missing after `seconds`.
#pragma once

#include <memory>
#include <string>

#include "strata/comm/pipes.h"
#include "strata/comm/rendezvous.h"

namespace strata {

struct JoinOptions {
  std::string version;      ///< of Strata
  std::string fingerprint;  ///< of what must be equal everywhere, as text to show: the recipe
  double seconds = 25;      ///< how long to wait for the others
};

std::unique_ptr<Pipes> join(const Rendezvous& rendezvous, const JoinOptions& options);

}  // namespace strata
