/// Shares a rank's work among its threads: pieces wait in a queue, and a free thread takes the
/// next.
///
/// With other processes on the machine, equal shares would wait for the slowest core, and OpenMP's
/// threads would spin for one another. Here work is cut finer than threads, and a thread without
/// work sleeps. Callers cut where bits don't change (parallel.h), so results depend neither on the
/// number of threads nor on their order.
///
///     ThreadPool pool(4);
///     const ThreadPoolScope scope(pool);  // from here on this thread's operators use it
///
/// Threads  one thread at a time uses a pool. Pieces run on that thread and on the pool's own
///          threads, charged to the caller's account, without grad mode. Nested pieces run on the
///          thread of their piece.
/// Cost     about 10 us per call whose pieces are shared; nothing for a single piece or thread.
/// Errors   run() throws the first exception of a piece when all pieces have ended; SystemError if
///          a thread cannot be started.
#pragma once

#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace strata {

class MemoryAccount;

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  ///< the caller counts as one
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Whether threads have recently ended their jobs at about the same time: then one equal part per
  /// thread is as good as finer pieces.
  bool balanced() const { return idle_.load(std::memory_order_relaxed) < kBalancedIdle; }

  /// Calls f(0) ... f(pieces - 1) once each, in any order; returns when all have ended.
  void run(std::int64_t pieces, c10::function_ref<void(std::int64_t)> f);

 private:
  struct Job {
    const c10::function_ref<void(std::int64_t)>* f = nullptr;
    MemoryAccount* account = nullptr;
    std::int64_t pieces = 0;
  };

  static constexpr double kBalancedIdle = 0.12;

  void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const;
  void work_until_stopped();
  void take_pieces(std::uint32_t job);
  void perform(std::int64_t piece);

  Job job_;
  std::atomic<std::uint32_t> number_{0};      // of the job; changes wake the workers
  std::atomic<std::uint64_t> tickets_{0};     // number of the job, then its remaining pieces
  std::atomic<std::uint32_t> unfinished_{0};  // pieces; the caller sleeps on it
  std::atomic<bool> failed_{false};
  std::atomic<bool> stopped_{false};
  std::exception_ptr failure_;
  // Share of a job in which the caller waits for others, a moving mean.
  std::atomic<double> idle_{0};
  std::vector<std::thread> workers_;
};

/// Makes `pool` the one that this thread's operators use, and sets ATen's own threads to one, also
/// afterwards: its OpenMP would compete with the pool.
class ThreadPoolScope {
 public:
  enum class AtenThreads : std::uint8_t { kOne, kKeep };
  explicit ThreadPoolScope(ThreadPool& pool, AtenThreads aten = AtenThreads::kOne);
  ~ThreadPoolScope();
  ThreadPoolScope(const ThreadPoolScope&) = delete;
  ThreadPoolScope& operator=(const ThreadPoolScope&) = delete;

 private:
  ThreadPool* previous_;
};

/// Lets operators of ATen divide their work among so many threads. Their sums may depend on the
/// number.
class AtenThreadsScope {
 public:
  explicit AtenThreadsScope(int threads);
  ~AtenThreadsScope();
  AtenThreadsScope(const AtenThreadsScope&) = delete;
  AtenThreadsScope& operator=(const AtenThreadsScope&) = delete;

 private:
  int before_;  // 0: nothing was changed
};

/// The calling thread's pool; without a scope, a pool of at::get_num_threads() threads.
ThreadPool& thread_pool();

}  // namespace strata
