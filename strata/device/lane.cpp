#include "strata/device/lane.h"

#include <ATen/core/grad_mode.h>

#include <exception>
#include <system_error>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

class Lane::Completion final : public PendingEvent {
 public:
  void happen(std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex_);
      failure_ = std::move(failure);
      happened_ = true;
    }
    changed_.notify_all();
  }

  bool query() const override {
    const std::lock_guard lock(mutex_);
    return happened_;
  }

  void synchronize() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return happened_; });
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool happened_ = false;
  std::exception_ptr failure_;
};

Lane::Lane() try : thread_([this] { work(); }) {
} catch (const std::system_error& error) {
  throw SystemError({.operation = "device.lane",
                     .what = "a thread cannot be started",
                     .expected = "",
                     .got = error.what(),
                     .fix = "raise the limit of threads (ulimit -u)"});
}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  submitted_.notify_one();
  thread_.join();
}

Event Lane::submit(std::function<void()> task, std::vector<Event> after) {
  const auto completion = std::make_shared<Completion>();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({std::move(task), std::move(after), completion});
  }
  submitted_.notify_one();
  return Event(completion);
}

void Lane::work() {
  const at::NoGradGuard no_grad;
  while (true) {
    std::unique_lock lock(mutex_);
    submitted_.wait(lock, [&] { return stopped_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    perform(std::move(task));
  }
}

void Lane::perform(Task task) {
  std::exception_ptr failure;
  try {
    for (const Event& event : task.after) event.synchronize();
    task.run();
  } catch (...) {
    failure = std::current_exception();
  }
  // What the task holds is given back before anybody goes on: he may count on the room.
  task.run = nullptr;
  task.after.clear();
  task.completion->happen(std::move(failure));
}

}  // namespace strata
