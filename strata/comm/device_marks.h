/// Knows what a rank's device is at, of all that it was given: where it hangs, the rank says so to those that wait
/// for it (transport/watchdog.h), whether its thread waits for the device or still gives it work.
///
/// Threads  doing(): the rank's; look(): another, bound to nothing.
/// Cost     an event for each thing that the rank does; they are asked when somebody looks.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <utility>

#include "strata/device/device.h"
#include "strata/transport/watchdog.h"

namespace strata {

class DeviceMarks {
 public:
  explicit DeviceMarks(Stream stream) : stream_(std::move(stream)) {}

  /// As Group::doing(): what was given before belongs to what was said before.
  void doing(const char* what, int position, int micro_batch);

  /// A collective that the device has come to behind `begun`, and which lasts until `done`.
  void collective(Completion begun, Completion done);

  /// Says in `progress` at what the device is, and for how long: as far as it was looked at.
  void look(RankProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    DeviceWork work;
    Completion done;
  };

  struct Collective {
    Completion begun, done;
  };
  bool waits_in_collective();

  const Stream stream_;
  std::mutex mutex_;  // of all below
  DeviceWork now_;
  std::deque<Mark> open_;  // the oldest in front
  std::deque<Collective> collectives_;
  Clock::time_point since_;  // the device is at the one in front
};

}  // namespace strata
