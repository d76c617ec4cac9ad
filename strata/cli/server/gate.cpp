#include "strata/cli/server/gate.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace strata {
namespace {

// In a process group of its own, without this program's files and the signals that it holds back.
// 0: it did not start.
pid_t start_shell(std::string command) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // clients' connections
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  char shell[] = "sh", option[] = "-c";
  char* const words[] = {shell, option, command.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/bin/sh", &actions, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed == 0 ? child : 0;
}

}  // namespace

int Gate::run(const std::string& command) {
  pid_t child = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return 1;
    child = running_ = start_shell(command);
  }
  if (child == 0) return 1;
  // Its number stays taken until the second wait, so close() cannot end another process.
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
    continue;
  const std::scoped_lock lock(mutex_);
  running_ = 0;
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

void Gate::close() {
  const std::scoped_lock lock(mutex_);
  closed_ = true;
  if (running_ > 0) ::kill(-running_, SIGKILL);
}

}  // namespace strata
