/// Shares one number through the store that torchrun's agent serves on MASTER_PORT, where the
/// processes therefore cannot meet themselves.
///
/// Errors  SystemError when the store does not answer in time.
#pragma once

#include "strata/transport/host_address.h"
#include "strata/transport/rendezvous.h"

namespace strata {

/// Process 0 passes the number on to the others, which get it.
int broadcast_number(const Rendezvous& rendezvous, int number, Deadline deadline);

}  // namespace strata
