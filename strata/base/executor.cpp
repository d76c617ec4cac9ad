#include "strata/base/executor.h"

#include <pthread.h>

#include <optional>
#include <system_error>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/processor_time.h"

namespace strata {

Executor::Executor(ExecutorOptions options) try
    : options_(std::move(options)), thread_([this] { work(); }) {
} catch (const std::system_error& error) {
  throw SystemError({.operation = "base.executor",
                     .what = "a thread cannot be started",
                     .expected = "",
                     .got = error.what(),
                     .fix = "raise the limit of threads (ulimit -u)"});
}

Executor::~Executor() {
  queue_.change([](Queue& queue) { queue.stopped = true; });
  thread_.join();
}

Completion Executor::submit(std::function<void()> task, std::vector<Completion> after) {
  return queue_.change([&](Queue& queue) {
    queue.tasks.push_back({std::move(task), std::move(after), Promise()});
    return queue.tasks.back().ended.completion();
  });
}

double Executor::take_processor_seconds() {
  return queue_.change([](Queue& queue) { return std::exchange(queue.processor_seconds, 0); });
}

void Executor::work() {
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  if (options_.prepare_thread) options_.prepare_thread();
  while (std::optional<Task> task =
             queue_.when([](const Queue& queue) { return queue.stopped || !queue.tasks.empty(); },
                         [](Queue& queue) {
                           std::optional<Task> next;
                           if (queue.tasks.empty()) return next;
                           next = std::move(queue.tasks.front());
                           queue.tasks.pop_front();
                           return next;
                         })) {
    const double began = thread_cpu_seconds();
    std::exception_ptr error = perform(*task);
    const double used = thread_cpu_seconds() - began;
    queue_.change([&](Queue& queue) { queue.processor_seconds += used; });
    task->ended.end(std::move(error));
  }
}

std::exception_ptr Executor::perform(Task& task) {
  std::exception_ptr error = failure_;
  try {
    if (!error) {
      for (const Completion& work : task.after) work.wait();
      task.run();
    }
  } catch (...) {
    error = std::current_exception();
    if (options_.after_failure == AfterFailure::kFailRest) failure_ = error;
  }
  // Release the task's memory before waiters are notified.
  task.run = nullptr;
  task.after.clear();
  return error;
}

}  // namespace strata
