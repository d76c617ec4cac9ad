/// Shares a rank's work among its threads: pieces wait in a queue, and whoever is free takes the
/// next.
///
/// Beside other processes equal shares would wait for the slowest core, and OpenMP's threads would
/// spin for one another; here work is cut finer than threads, and who finds none sleeps. Callers
/// cut where bits don't change (nn/host/parallel.h), so results depend neither on the threads nor
/// on who took which piece.
///
///     ThreadPool pool(4);
///     const ThreadPoolScope scope(pool);  // from here on this thread's operators use it
///
/// Threads  a pool is used by one thread at a time; pieces run on it and on the pool's own threads, charged to the caller's account, without grad mode. A piece that asks for
///          pieces runs them itself.
/// Cost     about 10 us a call whose pieces are shared; nothing for a single piece or thread.
/// Errors   the first exception of a piece is thrown by run() when all pieces have ended;
///          SystemError when a thread cannot be started.
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

  /// Whether threads have lately ended their jobs at about the same time: then equal parts, one a
  /// thread, are as good as finer ones.
  bool balanced() const { return idle_ < kBalancedIdle; }

  /// Calls f(0) ... f(pieces - 1), each once, in any order; returns when all have.
  void run(std::int64_t pieces, c10::function_ref<void(std::int64_t)> f);

 private:
  struct Job {
    const c10::function_ref<void(std::int64_t)>* f = nullptr;
    MemoryAccount* account = nullptr;
    std::int64_t pieces = 0;
  };

  static constexpr double kBalancedIdle = 0.12;

  void work_until_stopped();
  void take_pieces(std::uint32_t job);
  void perform(std::int64_t piece);

  Job job_;
  std::atomic<std::uint32_t> number_{0};      // of the job; changes wake the workers
  std::atomic<std::uint64_t> tickets_{0};     // number of the job, then pieces nobody has taken
  std::atomic<std::uint32_t> unfinished_{0};  // pieces; the caller sleeps on it
  std::atomic<bool> failed_{false};
  std::atomic<bool> stopped_{false};
  std::exception_ptr failure_;
  double idle_ = 0;  // part of a job in which the caller waits for others, a moving mean
  std::vector<std::thread> workers_;
};

/// Makes `pool` the one that this thread's operators use, and ATen's own threads one, also
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

/// The calling thread's pool; without a scope one of its own, of at::get_num_threads().
ThreadPool& thread_pool();

}  // namespace strata
