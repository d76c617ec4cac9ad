/// Says how much of the host's memory is free, for what is refused before it would take more.
#pragma once

#include <cstdint>

namespace strata {

/// What the system would hand out without swapping (MemAvailable); where it does not say, all that it has.
std::int64_t free_host_bytes();

}  // namespace strata
