/// Runs tasks one after another on a thread of its own.
///
///     Executor executor({.name = "update"});
///     const Completion updated = executor.submit([=] { ... }, {copied});  // starts when `copied` has ended
///     updated.wait();
///
/// A task that fails, or comes after work that failed, fails its completion. The tasks after it run, or
/// fail with the same error unrun, as AfterFailure says.
///
/// Threads  any thread may submit. What a task holds is released before its completion ends.
/// Errors   a completion carries what its task threw. SystemError: the thread cannot be started.
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
  std::string name;  ///< of the thread, as debuggers and `top -H` show it: at most 15 characters
  AfterFailure after_failure = AfterFailure::kRunNext;
  std::function<void()> prepare_thread =
      {};  ///< called first on the thread: sets what is the thread's own
};

class Executor {
 public:
  explicit Executor(ExecutorOptions options);
  ~Executor();  ///< waits until all submitted tasks have ended
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  Completion submit(std::function<void()> task, std::vector<Completion> after = {});

  /// Processor time of the tasks that have ended since the last call.
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
  std::exception_ptr failure_;  // of the thread: what ends it all with kFailRest
  std::thread thread_;
};

}  // namespace strata
