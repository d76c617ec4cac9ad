#include "tests/ranks/forked.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "strata/base/errors.h"
#include "strata/transport/socket.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void set_variables(int process, int processes, int port) {
  const auto set = [](const char* name, int value) {
    ::setenv(name, std::to_string(value).c_str(), 1);
  };
  set("RANK", process);
  set("LOCAL_RANK", process);
  set("WORLD_SIZE", processes);
  set("MASTER_PORT", port);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
}

std::string read_all(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(descriptor, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

}  // namespace

void ForkedProcess::ready() const {
  if (::write(ready_pipe_, "r", 1) != 1) std::abort();
}

Forked::Forked(int processes, const Body& body, int port) {
  if (port == 0) port = free_loopback_port();
  int ready[2];
  EXPECT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  ready_pipe_ = ready[0];
  std::fflush(nullptr);
  for (int process = 0; process < processes; ++process) {
    int text[2];
    EXPECT_EQ(::pipe2(text, O_CLOEXEC), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      set_variables(process, processes, port);
      run_child(ForkedProcess(process, ready[1]), body, text[1]);
    }
    ::close(text[1]);
    children_.push_back({pid, text[0]});
  }
  ::close(ready[1]);
}

void Forked::run_child(const ForkedProcess& self, const Body& body, int text_pipe) {
  int code = 0;
  std::string text;
  try {
    body(self);
    if (testing::Test::HasFailure()) code = 1;
  } catch (const std::exception& error) {
    code = exit_code(error);
    text = error.what();
  }
  std::fflush(nullptr);
  if (::write(text_pipe, text.data(), text.size()) < 0) code = 1;
  ::_exit(code);
}

Forked::~Forked() {
  for (const Child& child : children_) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    ::close(child.text_pipe);
  }
  ::close(ready_pipe_);
}

void Forked::await_ready() { await_ready(static_cast<int>(children_.size())); }

void Forked::await_ready(int processes) {
  char byte;
  for (int i = 0; i < processes; ++i)
    ASSERT_EQ(::read(ready_pipe_, &byte, 1), 1) << "a child ended before it was ready";
}

void Forked::send_signal(int process, int signal) { ::kill(children_[process].pid, signal); }

std::vector<Outcome> Forked::wait(double seconds, int hung) {
  const Clock::time_point begin = Clock::now();
  std::vector<Outcome> outcomes(children_.size());
  for (std::size_t left = children_.size(); left > 0;) {
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (children_[i].pid == 0) continue;
      const bool late =
          seconds_since(begin) > seconds || (left == 1 && static_cast<int>(i) == hung);
      int status = 0;
      if (late) ::kill(children_[i].pid, SIGKILL);
      if (::waitpid(children_[i].pid, &status, late ? 0 : WNOHANG) == 0) continue;
      outcomes[i].seconds = seconds_since(begin);
      if (WIFEXITED(status)) outcomes[i].exit_code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) outcomes[i].signal = WTERMSIG(status);
      outcomes[i].text = read_all(children_[i].text_pipe);
      ::close(children_[i].text_pipe);
      children_[i].pid = 0;
      --left;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  children_.clear();
  return outcomes;
}

void expect_success(int processes, const Forked::Body& body) {
  for (const char* sockets : {"0", "1"}) {
    SCOPED_TRACE(std::string("STRATA_SOCKETS=") + sockets);
    const Forked::Body either = [&](const ForkedProcess& self) {
      ::setenv("STRATA_SOCKETS", sockets, 1);
      body(self);
    };
    const std::vector<Outcome> outcomes = Forked(processes, either).wait();
    for (std::size_t i = 0; i < outcomes.size(); ++i)
      EXPECT_EQ(outcomes[i].exit_code, 0)
          << "process " << i << ", signal " << outcomes[i].signal << ": " << outcomes[i].text;
  }
}

}  // namespace strata
