/// Records when work runs in parallel with a rank: copies to and from its device, updates on its
/// host, reads and writes of its disk, and the work of an asynchronous device.
///
/// Threads  any: each track adds its events, the rank takes them.
/// Units    seconds of now_seconds() (measurement.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "strata/base/enum_names.h"

namespace strata {

/// A track does one thing after another, in parallel with the other tracks.
enum class TrackKind : std::uint8_t {
  kToDevice,
  kToHost,
  kUpdate,
  kDiskRead,
  kDiskWrite,
  kCompute,      ///< the device's work for the rank's actions, timed by device events
  kCommunicate,  ///< the device's exchanges with other devices
};
inline constexpr int kNumTrackKinds = count_enumerators<TrackKind>();

inline const char* name_of(TrackKind track) {
  using enum TrackKind;
  static constexpr EnumNames<TrackKind> kNames{
      {kToDevice, "link in"},       {kToHost, "link out"},      {kUpdate, "host update"},
      {kDiskRead, "disk read"},     {kDiskWrite, "disk write"}, {kCompute, "device"},
      {kCommunicate, "collectives"}};
  return kNames[track];
}

/// The work of a track for a layer.
struct TrackEvent {
  TrackKind track;
  int layer = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

class TrackTrace {
 public:
  void add(const TrackEvent& event) {
    const std::lock_guard lock(mutex_);
    // If no caller draws the trace, no caller takes its events: keep only the latest.
    if (events_.size() >= kMost) events_.erase(events_.begin(), events_.begin() + kMost / 2);
    events_.push_back(event);
  }

  /// Returns the events that ended since the last call, in the order in which they were added.
  std::vector<TrackEvent> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  static constexpr std::ptrdiff_t kMost = 1 << 16;
  std::mutex mutex_;
  std::vector<TrackEvent> events_;
};

}  // namespace strata
