/// Runs tasks in order on its own thread.
///
///     Executor executor({.name = "update"});
///     const Completion updated = executor.submit([=] { ... }, {copied});  // runs after `copied`
///     updated.wait();
///
/// A task that fails, or that waits for work that failed, fails its completion. AfterFailure states
/// whether later tasks run or fail with the same error.
///
/// Threads  any thread may submit. Objects that a task holds are released before its completion
///          ends.
/// Errors   a completion carries the exception of its task. SystemError: the thread cannot be
///          started.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/completion.h"
#include "strata/base/monitor.h"

namespace strata {

enum class AfterFailure : std::uint8_t { kRunNext, kFailRest };

struct ExecutorOptions {
  std::string name;  ///< of the thread in debuggers and `top -H`: at most 15 characters
  AfterFailure after_failure = AfterFailure::kRunNext;
  std::function<void()> prepare_thread = {};  ///< runs first on the thread: sets thread-local state
};

class Executor {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor();  ///< waits until all submitted tasks have ended
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  Completion submit(std::function<void()> task, std::vector<Completion> after = {});

  /// Returns the processor seconds of the tasks that have ended since the last call.
  double take_processor_seconds();

 private:
  struct Task {
    std::function<void()> run;
    std::vector<Completion> after;
    Promise ended;
  };
  struct Queue {
    std::deque<Task> tasks;
    bool stopped = false;
    double processor_seconds = 0;
  };

  void work();
  std::exception_ptr perform(Task& task);

  const ExecutorOptions options_;
  Monitor<Queue> queue_;
  std::exception_ptr failure_;  // used by the thread with kFailRest: later tasks fail with it
  std::thread thread_;
};

}  // namespace strata
