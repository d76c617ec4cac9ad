/// Keeps what every rank says it is doing, so that whoever waits too long can name the rank that
/// blocks it.
///
/// Threads  all methods from any thread.
/// Cost     a rank's own words: one uncontended lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace strata {

/// Plain bytes: ranks of other processes send theirs as they are.
struct RankProgress {
  char what[48] = "";             ///< "forward", "data loading", "activation"
  std::int32_t position = -1;     ///< in the rank's program; -1: none
  std::int32_t micro_batch = -1;  ///< -1: none
  std::int32_t waits_for = -1;    ///< world rank; -1: does not wait
  bool collective = false;        ///< the wait is part of a collective
  bool ended = false;             ///< the rank's function has returned
  double unchanged_seconds = 0;   ///< since it last said anything new
  double silent_seconds = 0;      ///< since its process was last heard of
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

}  // namespace strata
