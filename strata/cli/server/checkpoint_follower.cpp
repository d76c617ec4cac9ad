#include "strata/cli/server/checkpoint_follower.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/checkpoint/folder.h"
#include "strata/cli/arguments.h"

namespace strata {

CheckpointFollower::CheckpointFollower(FollowOptions options,
                                       std::shared_ptr<CheckpointTaker> taker, std::int64_t step)
    : options_(std::move(options)),
      taker_(std::move(taker)),
      tried_(step),
      thread_([this] { run(); }) {}

CheckpointFollower::~CheckpointFollower() { stop(); }

void CheckpointFollower::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  gate_.close();
  taker_->refuse_loads();
  if (thread_.joinable()) thread_.join();
}

void CheckpointFollower::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.interval, [&] { return stops_; })) {
    lock.unlock();
    try {
      look();
    } catch (const std::exception& error) {
      options_.report("refused   " + std::string(to_error(error).what()));
    }
    if (!taker_->ready()) return;
    lock.lock();
  }
}

void CheckpointFollower::look() {
  const std::vector<std::string> checkpoints = list_checkpoints(options_.folder);
  if (checkpoints.empty()) return;
  const std::string& newest = checkpoints.back();
  const std::int64_t step =
      step_of_folder_name(std::filesystem::path(newest).filename().string()).value();
  if (step <= tried_) return;
  tried_ = step;
  if (!passes(newest)) return;
  const auto begin = std::chrono::steady_clock::now();
  if (!taker_->load(newest)) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  options_.report("promoted  " + newest + " after " + format_seconds(seconds.count()));
}

bool CheckpointFollower::passes(const std::string& checkpoint) {
  if (options_.gate.empty()) return true;
  const int code = gate_.run(options_.gate + " " + shell_text({checkpoint}));
  if (code != 0)
    options_.report("refused   " + checkpoint + ": the gate ended with exit code " +
                    std::to_string(code));
  return code == 0;
}

}  // namespace strata
