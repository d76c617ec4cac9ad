/// Records what is done beside a rank and when: transfers to and from its device, updates on its host,
/// reads and writes of its disk; of a device that works behind the rank's back, its work itself.
///
/// Threads  any: every lane adds what it has done, the rank takes it.
/// Units    seconds of now_seconds() (measurement.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace strata {

/// A lane does one thing after another, at the same time as the others.
enum class LaneKind : std::uint8_t {
  kToDevice,
  kToHost,
  kUpdate,
  kDiskRead,
  kDiskWrite,
  kCompute,      ///< a device's work for the rank's actions, by its own events
  kCommunicate,  ///< what it exchanges with other devices
};
inline constexpr int kNumLaneKinds = 7;

inline const char* name_of(LaneKind lane) {
  constexpr const char* kNames[kNumLaneKinds] = {
      "link in", "link out", "host update", "disk read", "disk write", "device", "collectives"};
  return kNames[static_cast<int>(lane)];
}

/// What a lane did for a layer.
struct LaneEvent {
  LaneKind lane;
  int layer = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

class LaneTrace {
 public:
  void add(const LaneEvent& event) {
    const std::lock_guard lock(mutex_);
    // Nobody takes them where nobody draws: the latest are kept.
    if (events_.size() >= kMost) events_.erase(events_.begin(), events_.begin() + kMost / 2);
    events_.push_back(event);
  }

  /// What has ended since the last call, by lanes' ends.
  std::vector<LaneEvent> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  static constexpr std::ptrdiff_t kMost = 1 << 16;
  std::mutex mutex_;
  std::vector<LaneEvent> events_;
};

}  // namespace strata
