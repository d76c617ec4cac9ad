/// Keeps what every rank says it is doing, follows who waits for whom to the rank that blocks all
/// others, says so once, and ends the run if it lasts.
///
/// Threads  ProgressTable: all methods from any thread. Watchdog: a thread of its own looks a few times
///          in `stall_seconds`, at least once a second, and tells the other processes what this one's
///          ranks are doing.
/// Cost     a rank's own words: one uncontended lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/monitor.h"

namespace strata {

/// What a rank's device has not done yet, the oldest of it.
struct DeviceWork {
  char what[48] = "";  ///< as the rank said when it gave the work
  std::int32_t position = -1;
  std::int32_t micro_batch = -1;
  bool collective = false;  ///< it has come to a collective, which waits for others
  double seconds = 0;       ///< that it is at this; 0: it has done all, or is nobody's business
};

/// What a rank is doing. Plain bytes: ranks of other processes send theirs as they are.
struct RankProgress {
  char what[48] = "";             ///< "forward", "data loading", "activation"
  std::int32_t position = -1;     ///< in the rank's program; -1: none
  std::int32_t micro_batch = -1;  ///< -1: none
  std::int32_t waits_for = -1;    ///< world rank; -1: does not wait
  bool collective = false;        ///< the wait is part of a collective
  bool ended = false;             ///< the rank's function has returned
  double unchanged_seconds = 0;   ///< since it last said anything new
  double silent_seconds = 0;      ///< since its process was last heard of
  DeviceWork device;
};

class ProgressTable {
 public:
  explicit ProgressTable(int ranks);
  int size() const { return static_cast<int>(entries_.size()); }

  /// The calling thread's waits are from now on those of the rank; those of others don't count.
  void bind(int rank);
  void doing(int rank, const char* what, int position, int micro_batch);
  void begin_wait(int rank, int from, bool collective);
  void end_wait(int rank);
  void end(int rank);

  /// What another process tells of its ranks [first, first + ranks.size()).
  void update(int first, std::span<const RankProgress> ranks);

  /// As of now.
  RankProgress of(int rank) const;

  /// Clears the last `seconds`, in which this process itself was stopped, from every rank's count.
  void clear(double seconds);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    mutable std::mutex mutex;
    RankProgress progress;
    Clock::time_point changed = Clock::now();
    Clock::time_point heard = Clock::now();
    std::thread::id thread;
    bool local = false;
  };
  template <typename Change>
  void change(int rank, const Change& change);

  std::vector<std::unique_ptr<Entry>> entries_;
};

struct Stall {
  int blocking_rank = 0;
  bool on_device = false;  ///< it is its device that does not go on
  double seconds = 0;      ///< without any progress of waiter and blocking rank
  std::string text;        ///< "rank 3 waits at position 17 for ... from rank 7, last seen in ..."
};

/// A wait is no stall as long as the rank waited for makes progress. A rank whose device is at one thing for so
/// long waits for it; as devices wait for one another in collectives, whoever stands still elsewhere blocks them.
std::optional<Stall> diagnose(const std::vector<RankProgress>& ranks, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of);

class Watchdog {
 public:
  struct Options {
    int first_rank = 0, local_ranks = 1;  ///< of this process
    double stall_seconds = 10;            ///< 0: only tells the others
    double fatal_seconds = 60;            ///< 0: never
    double stopped_seconds = 3;  ///< more from look to look: this process itself was stopped
    std::function<std::string(int rank)> name_of;
    std::function<void(std::span<const RankProgress>)> tell_others;  ///< may be empty
    /// Fills in what the device of a rank of this process is at; may be empty.
    std::function<void(int rank, RankProgress& progress)> look_at_device;
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
  RankProgress of(int rank) const;
  void report(const Stall& stall);

  ProgressTable& table_;
  Options options_;
  std::map<int, double> warned_;  // blocking rank: seconds of its stall when last looked at
  /// The last time; at first, before the thread has begun, for it may be stopped until then, too.
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  Monitor<bool> ended_;
  std::thread thread_;
};

}  // namespace strata
