/// Finds addresses: of the place where processes meet, and of this machine.
#pragma once

#include <string>

#include "strata/comm/rendezvous.h"

namespace strata {

/// UserError for a host without address.
void require_address(const Rendezvous& rendezvous);

/// This machine's address as those at the meeting point see it.
std::string own_address(const Rendezvous& rendezvous);

/// A port of this machine that is free now.
int free_loopback_port();

}  // namespace strata
