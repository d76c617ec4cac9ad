/// Gives a served model the newest checkpoint of a folder to which a run saves.
///
/// A checkpoint whose files are damaged, that is of another model or that the gate refuses, is
/// reported and never tried again; the server keeps its weights. Checkpoints that are not the
/// newest at a look are left out.
///
/// Threads  one of its own.
/// Errors   reported; when the model is no longer ready the follower stops.
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

namespace strata {

struct FollowOptions {
  std::string folder;  ///< holds step-NNNNNNNN
  std::chrono::milliseconds interval{0};
  /// A shell command, to which the checkpoint's path is appended. It refuses the checkpoint by an
  /// exit code other than 0. Empty: every checkpoint is taken.
  std::string gate = {};
  std::function<void(const std::string& sentence)> report = {};
};

/// A served model that can take another checkpoint.
class CheckpointTaker {
 public:
  virtual ~CheckpointTaker() = default;
  /// Replaces what answers requests without losing one. False after refuse_loads(). UserError, and
  /// nothing changes: a checkpoint that is damaged or of another model.
  virtual bool load(const std::string& checkpoint) = 0;
  virtual void refuse_loads() = 0;  ///< gives up a load() that still waits, and later ones
  virtual bool ready() const = 0;   ///< false: nothing can be loaded any more
};

class CheckpointFollower {
 public:
  /// `taker` has the checkpoint of step `step`.
  CheckpointFollower(FollowOptions options, std::shared_ptr<CheckpointTaker> taker,
                     std::int64_t step);
  ~CheckpointFollower();

  /// Ends the gate's command and a load that waits for requests; waits for one that runs.
  void stop();

 private:
  void run();
  void look();
  bool passes(const std::string& checkpoint);

  FollowOptions options_;
  std::shared_ptr<CheckpointTaker> taker_;
  std::int64_t tried_;  // step of the newest checkpoint that was tried
  Gate gate_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stops_ = false;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace strata
