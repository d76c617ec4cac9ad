/// Performs tasks one after another on a thread of its own, beside the rank: what a copy engine or a
/// host optimizer does.
///
///     Lane lane;
///     const Event copied = lane.submit([=] { ... }, {updated});  // begins when `updated` has happened
///     copied.synchronize();
///
/// A task that fails, or waits for one that failed, fails every event that waits for it; tasks behind it
/// go on.
///
/// Threads  any thread may submit. A task's captures are gone when its event has happened.
/// Errors   an event throws what its task threw to everyone who waits for it; SystemError when the thread
///          cannot be started.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "strata/device/device.h"

namespace strata {

class Lane {
 public:
  Lane();
  ~Lane();  ///< when everything submitted is done
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Event submit(std::function<void()> task, std::vector<Event> after = {});

 private:
  class Completion;
  struct Task {
    std::function<void()> run;
    std::vector<Event> after;
    std::shared_ptr<Completion> completion;
  };

  void work();
  static void perform(Task task);

  std::mutex mutex_;
  std::condition_variable submitted_;
  std::deque<Task> tasks_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace strata
