/// Gives a served model the newest checkpoint of a folder to which a run saves.
///
/// A checkpoint whose files are damaged, that is of another model or that the gate refuses, is
/// reported and never tried again; the server keeps its weights. Checkpoints that are not the
/// newest at a look are left out.
///
/// Threads  one of its own.
/// Errors   reported; after the ranks have ended the follower stops.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "strata/cli/server/gate.h"
#include "strata/serve/model_service.h"

namespace strata {

struct FollowOptions {
  std::string folder;  ///< holds step-NNNNNNNN
  std::chrono::milliseconds interval{0};
  /// A shell command, to which the checkpoint's path is appended. It refuses the checkpoint by an
  /// exit code other than 0. Empty: every checkpoint is taken.
  std::string gate = {};
  std::function<void(const std::string& sentence)> report = {};
};

class CheckpointFollower {
 public:
  /// `service` has the checkpoint of step `step`.
  CheckpointFollower(FollowOptions options, std::shared_ptr<ModelService> service,
                     std::int64_t step);
  ~CheckpointFollower();

  /// Ends the gate's command and a load that waits for requests; waits for one that runs.
  void stop();

 private:
  void run();
  void look();
  bool passes(const std::string& checkpoint);

  FollowOptions options_;
  std::shared_ptr<ModelService> service_;
  std::int64_t tried_;  // step of the newest checkpoint that was tried
  Gate gate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace strata
