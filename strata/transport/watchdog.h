/// Follows who waits for whom, to the rank that blocks all others; says so once, and ends the run
/// if it lasts.
///
/// A thread looks a few times in `stall_seconds`, at least once a second, and tells the other
/// processes what this one's ranks are doing.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/transport/progress_table.h"

namespace strata {

struct Stall {
  int blocking_rank = 0;
  double seconds = 0;  ///< without any progress of waiter and blocking rank
  std::string text;    ///< "rank 3 waits at position 17 for ... from rank 7, last seen in ..."
};

/// A wait is no stall as long as the rank waited for makes progress.
std::optional<Stall> diagnose(const std::vector<RankProgress>& ranks, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of);

class Watchdog {
 public:
  struct Options {
    int first_rank = 0, local_ranks = 1;  ///< of this process
    double stall_seconds = 10;            ///< 0: only tells the others
    double fatal_seconds = 60;            ///< 0: never
    std::function<std::string(int rank)> name_of;
    std::function<void(std::span<const RankProgress>)> tell_others;  ///< may be empty
    std::function<void(const std::string& line)> warn;
    std::function<void(const Error&)> fail;
    std::function<bool()> failed;  ///< nothing is looked for any more
  };
  Watchdog(ProgressTable& table, Options options);
  ~Watchdog();

  /// Tells the other processes now.
  void tell();

 private:
  void watch();
  void look();
  void report(const Stall& stall);

  ProgressTable& table_;
  Options options_;
  std::map<int, double> warned_;  // blocking rank: seconds of its stall when last looked at
  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace strata
