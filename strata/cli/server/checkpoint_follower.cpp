#include "strata/cli/server/checkpoint_follower.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/checkpoint/folder.h"
#include "strata/cli/arguments.h"

namespace strata {
namespace {

// The exit code of a shell command; a signal counts as 1. The command does not inherit the signals
// that this program holds back.
int exit_code_of(const std::string& command) {
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string text = command;
  char shell[] = "sh", option[] = "-c";
  char* const words[] = {shell, option, text.data(), nullptr};
  pid_t child = 0;
  const int failed = posix_spawn(&child, "/bin/sh", nullptr, &attributes, words, environ);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0) return 1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

CheckpointFollower::CheckpointFollower(FollowOptions options, std::shared_ptr<ModelService> service,
                                       std::string current)
    : options_(std::move(options)),
      service_(std::move(service)),
      tried_(std::move(current)),
      thread_([this] { run(); }) {}

CheckpointFollower::~CheckpointFollower() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointFollower::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.interval, [&] { return stops_; })) {
    lock.unlock();
    try {
      look();
    } catch (const SystemError& error) {
      options_.report(error.what());
      return;
    }
    lock.lock();
  }
}

void CheckpointFollower::look() {
  const std::vector<std::string> checkpoints = list_checkpoints(options_.folder);
  if (checkpoints.empty() || checkpoints.back() == tried_) return;
  tried_ = checkpoints.back();
  if (!options_.gate.empty()) {
    if (const int code = exit_code_of(options_.gate + " " + shell_text({tried_})); code != 0) {
      options_.report("refused   " + tried_ + ": the gate ended with exit code " +
                      std::to_string(code));
      return;
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  try {
    service_->load(tried_);
  } catch (const UserError& error) {
    options_.report("refused   " + std::string(error.what()));
    return;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  options_.report("promoted  " + tried_ + " after " + format_seconds(seconds.count()));
}

}  // namespace strata
