/// Records the progress of every rank, follows the chain of waits to the rank that blocks all
/// others, reports it once, and ends the run if the stall lasts.
///
/// Threads  ProgressTable: all methods from any thread. Watchdog: its own thread checks a few times
///          per `stall_seconds`, at least once a second, and sends the progress of this process's
///          ranks to the others.
/// Cost     one uncontended lock per report of a rank.
/// Errors   SystemError, which `fail` gets when a stall exceeds `fatal_seconds`.
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

/// The oldest work that a rank's device has not completed.
struct DeviceWork {
  char what[48] = "";  ///< the rank's description when it enqueued the work
  std::int32_t position = -1;
  std::int32_t micro_batch = -1;
  bool collective = false;  ///< it has reached a collective, which waits for others
  double seconds = 0;       ///< for how long; 0: the device is idle or not observed
};

/// The progress of a rank. Plain bytes: ranks of other processes send theirs unchanged.
struct RankProgress {
  char what[48] = "";             ///< "forward", "data loading", "activation"
  std::int32_t position = -1;     ///< index in the rank's program; -1: none
  std::int32_t micro_batch = -1;  ///< -1: none
  std::int32_t waits_for = -1;    ///< world rank; -1: does not wait
  bool collective = false;        ///< the wait is part of a collective
  bool ended = false;             ///< the rank's function has returned
  double unchanged_seconds = 0;   ///< since its last new progress
  double silent_seconds = 0;      ///< since the last message of its process
  DeviceWork device;
};

class ProgressTable {
 public:
  explicit ProgressTable(int ranks);
  int size() const { return static_cast<int>(entries_.size()); }

  /// From now on the calling thread's waits count as those of the rank; those of other threads do
  /// not.
  void bind(int rank);
  void report_progress(int rank, const char* what, int position, int micro_batch);
  void begin_wait(int rank, int from, bool collective);
  void end_wait(int rank);
  void end(int rank);

  /// The progress that another process reports for its ranks [first, first + ranks.size()).
  void update(int first, std::span<const RankProgress> ranks);

  /// The rank's current progress.
  RankProgress of(int rank) const;

  /// Subtracts the last `seconds`, in which this process itself was stopped, from every rank's
  /// count.
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
  bool on_device = false;  ///< the rank's device makes no progress
  double seconds = 0;      ///< without progress of the waiting and the blocking rank
  std::string text;        ///< "rank 3 waits at position 17 for ... from rank 7, last seen in ..."
};

/// A wait is no stall while the awaited rank makes progress. A rank whose device works on one thing
/// for that long waits for the device. Devices wait for each other in collectives, so a rank that
/// makes no progress elsewhere blocks them.
std::optional<Stall> diagnose(const std::vector<RankProgress>& ranks, int waiter, double seconds,
                              const std::function<std::string(int rank)>& name_of);

class Watchdog {
 public:
  struct Options {
    int first_rank = 0, local_ranks = 1;  ///< of this process
    double stall_seconds = 10;            ///< 0: only reports to the others
    double fatal_seconds = 60;            ///< 0: never
    double stopped_seconds = 3;  ///< longer between two checks: this process itself was stopped
    std::function<std::string(int rank)> name_of;
    std::function<void(std::span<const RankProgress>)> tell_others;  ///< may be empty
    /// Sets what the device of a rank of this process works on; may be empty.
    std::function<void(int rank, RankProgress& progress)> look_at_device;
    std::function<void(const std::string& line)> warn;
    std::function<void(const Error&)> fail;
    std::function<bool()> failed;  ///< true: stop checking
  };
  Watchdog(ProgressTable& table, Options options);
  ~Watchdog();

  /// Reports to the other processes now.
  void tell();

 private:
  void watch();
  void look();
  RankProgress of(int rank) const;
  void report(const Stall& stall);

  ProgressTable& table_;
  Options options_;
  std::map<int, double> warned_;  // per blocking rank: seconds of its stall at the last check
  /// The time of the last check; initially before the thread starts, because it may be stopped
  /// until then, too.
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  Monitor<bool> ended_;
  std::thread thread_;
};

}  // namespace strata
