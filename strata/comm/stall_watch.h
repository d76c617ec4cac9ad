/// Looks once a second whether a rank of this process waits for one that makes no progress; says
/// so, once, and ends the run if it lasts.
///
/// Also tells the other processes what this one's ranks are doing.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "strata/base/errors.h"
#include "strata/comm/post_office.h"
#include "strata/comm/stall.h"

namespace strata {

class StallWatch {
 public:
  struct Options {
    double stall_seconds = 10;
    double fatal_seconds = 60;  ///< 0: never
    std::function<std::string(int rank)> name_of;
    std::function<void(std::span<const Activity>)> tell_others;  ///< may be empty
    std::function<void(const std::string& line)> warn;
    std::function<void(const Error&)> fail;
  };
  StallWatch(PostOffice& office, Options options);
  ~StallWatch();

  /// Tells the other processes now.
  void tell();

 private:
  void watch();
  void look();
  void report(int waiter, const Stall& stall);

  PostOffice& office_;
  Options options_;
  std::map<int, double> warned_;  // culprit: seconds of its stall when last looked at
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace strata
