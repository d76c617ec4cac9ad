/// Records what a rank's device works on. If the device hangs, the rank reports that to the ranks
/// that wait for it (transport/watchdog.h), whether its thread waits for the device or still
/// enqueues work.
///
/// Threads  report_progress(): the rank's; look(): another thread, not bound to a rank.
/// Cost     one event per report of the rank; the events are queried only by look().
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

  /// As Group::report_progress(): earlier work belongs to the previous report.
  void report_progress(const char* what, int position, int micro_batch);

  /// A collective that the device reaches at `begun` and that ends at `done`.
  void collective(Completion begun, Completion done);

  /// Writes to `progress` what the device works on and for how long.
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
  std::mutex mutex_;  // guards everything below
  DeviceWork now_;
  std::deque<Mark> open_;  // the oldest in front
  std::deque<Collective> collectives_;
  Clock::time_point since_;  // the device is at the one in front
};

}  // namespace strata
