#include "strata/comm/device_marks.h"

#include <cstring>
#include <exception>
#include <utility>

namespace strata {

void DeviceMarks::report_progress(const char* what, int position, int micro_batch) {
  const bool recording = stream_.queue()->recording();  // then it is not done now
  // Outside the lock: a hanging device whose queue is full blocks the rank here while another
  // thread reads.
  Completion done = recording ? Completion() : stream_.record();
  const std::lock_guard lock(mutex_);
  const DeviceWork before =
      std::exchange(now_, DeviceWork{.position = position, .micro_batch = micro_batch});
  std::strncpy(now_.what, what, sizeof now_.what - 1);
  if (recording) return;
  if (open_.empty()) since_ = Clock::now();
  open_.push_back({before, std::move(done)});
}

void DeviceMarks::collective(Completion begun, Completion done) {
  const std::lock_guard lock(mutex_);
  collectives_.push_back({std::move(begun), std::move(done)});
}

// Marks complete in order.
bool DeviceMarks::waits_in_collective() {
  while (!collectives_.empty() && collectives_.front().done.ready()) collectives_.pop_front();
  return !collectives_.empty() && collectives_.front().begun.ready();
}

void DeviceMarks::look(RankProgress& progress) {
  const DeviceScope on_device(stream_.device());
  const std::lock_guard lock(mutex_);
  bool collective = false;
  try {
    collective = waits_in_collective();
    while (!open_.empty() && open_.front().done.ready()) {
      open_.pop_front();
      since_ = Clock::now();
    }
  } catch (const std::exception&) {  // the rank gets the error itself
    open_.clear();
    collectives_.clear();
  }
  if (open_.empty()) return;
  progress.device = open_.front().work;
  progress.device.collective = collective;
  progress.device.seconds = std::chrono::duration<double>(Clock::now() - since_).count();
}

}  // namespace strata
