/// Forks processes that join on a port of their own, for tests; the parent uses no tensor.
///
/// Each child has the variables of torchrun, dies with its parent, and ends with the exit code of
/// the error that its body throws, whose text is part of the outcome; 1 if an expectation failed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace strata {

struct Outcome {
  int exit_code = -1;  ///< -1: ended by a signal, or too late
  int signal = 0;
  std::string text;    ///< of the error
  double seconds = 0;  ///< from the start of wait()
};

/// A child calls ready() once to notify the parent.
class ForkedProcess {
 public:
  ForkedProcess(int process, int ready_pipe) : process_(process), ready_pipe_(ready_pipe) {}
  int process() const { return process_; }
  void ready() const;

 private:
  int process_, ready_pipe_;
};

class Forked {
 public:
  using Body = std::function<void(const ForkedProcess& self)>;
  /// `port` 0: a free one.
  Forked(int processes, const Body& body, int port = 0);
  ~Forked();
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;

  void await_ready();  ///< all
  void await_ready(int processes);
  void send_signal(int process, int signal);
  /// Waits for all; kills the remaining ones after `seconds`, and `hung` when the others have
  /// ended.
  std::vector<Outcome> wait(double seconds = 60, int hung = -1);

 private:
  struct Child {
    pid_t pid = 0;
    int text_pipe = -1;
  };
  [[noreturn]] static void run_child(const ForkedProcess& self, const Body& body, int text_pipe);

  std::vector<Child> children_;
  int ready_pipe_ = -1;
};

/// Runs the body in `processes` and expects that all end without an error: once as same-host peers
/// that read each other's memory, once over sockets only.
void expect_success(int processes, const Forked::Body& body);

}  // namespace strata
