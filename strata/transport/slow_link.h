/// Sends the messages of another transport as slowly as a network would, so that one machine shows
/// what a run takes on that network.
///
/// A process sends its messages one after another, to all peers together. Each arrives the latency
/// after its last byte has left. Processes do not read each other's memory.
///
/// Units    bytes, seconds; the header of a message counts, too.
/// Threads  as Transport; one more thread, which passes the messages on.
#pragma once

#include <memory>

#include "strata/transport/transport.h"

namespace strata {

/// The emulated network between processes: `mesh.link`. By default without limits.
struct LinkLimit {
  double bytes_per_second = 0;  ///< sent by a process; 0: no limit
  double latency_seconds = 0;   ///< from the departure of a message's last byte to its arrival

  bool is_set() const { return bytes_per_second > 0 || latency_seconds > 0; }
  /// Seconds in which that many bytes leave a process.
  double seconds_of(double bytes) const {
    return bytes_per_second > 0 ? bytes / bytes_per_second : 0;
  }
};

/// The transport itself if the limit is not set.
std::unique_ptr<Transport> with_limit(std::unique_ptr<Transport> transport, const LinkLimit& limit);

}  // namespace strata
