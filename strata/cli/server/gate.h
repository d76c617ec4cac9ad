/// Runs the command that decides whether a server takes a checkpoint.
///
/// Threads  one runs the command; any other may end it.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>

namespace strata {

class Gate {
 public:
  /// Runs `command` in a shell and returns its exit code; 1 for a signal, or if it does not start.
  int run(const std::string& command);

  /// Ends the command that runs, with all that it started, and every later one at once.
  void close();

 private:
  std::mutex mutex_;
  pid_t running_ = 0;  // guarded by the mutex
  bool closed_ = false;
};

}  // namespace strata
