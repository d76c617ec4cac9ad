// A ticket counter holds the job's number in addition to the remaining pieces, so that a worker
// that wakes late cannot take a piece of the next job with the description of the last. Only
// holders of a ticket read the description, and the caller does not change it before all tickets
// are done.
//
// A waiting thread spins first, because the next job of a step usually follows soon, and then
// sleeps: spinning would take the core from the thread that it waits for. It spins longer if each
// thread seems to have a core: the products of a token that is being generated follow one another
// within 100 us, and to wake a thread takes half as long as such a product.
#include "strata/device/thread_pool.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <chrono>
#include <memory>
#include <system_error>

#include "strata/base/errors.h"
#include "strata/device/account.h"

namespace strata {
namespace {

constexpr std::uint64_t kPieces = 0xffffffff;
constexpr std::chrono::microseconds kSpin{20}, kSpinIfBalanced{200};

// Shorter jobs measure the wake-up of a thread more than the load of the cores.
constexpr std::chrono::microseconds kMeasured{200};
constexpr double kWeight = 1.0 / 32;  // weight of one job in the moving mean

thread_local ThreadPool* current_pool = nullptr;
thread_local std::unique_ptr<ThreadPool> own_pool;
thread_local bool inside_piece = false;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  STRATA_CHECK(threads >= 1, "device.thread_pool");
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work_until_stopped(); });
  } catch (const std::system_error& error) {
    stopped_ = true;
    number_.fetch_add(1);
    number_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    throw SystemError({.operation = "device.thread_pool",
                       .what = "a thread cannot be started",
                       .expected = std::to_string(threads) + " threads a rank",
                       .got = error.what(),
                       .fix = "set mesh.threads to fewer, or raise the limit (ulimit -u)"});
  }
}

ThreadPool::~ThreadPool() {
  stopped_.store(true, std::memory_order_relaxed);
  number_.fetch_add(1, std::memory_order_release);
  number_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// Waits until `value` differs from `old`.
void ThreadPool::wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const {
  const auto end = std::chrono::steady_clock::now() + (balanced() ? kSpinIfBalanced : kSpin);
  while (value.load(std::memory_order_acquire) == old) {
    for (int i = 0; i < 16; ++i) pause();
    if (std::chrono::steady_clock::now() < end) continue;
    value.wait(old, std::memory_order_acquire);
    return;
  }
}

void ThreadPool::run(std::int64_t pieces, c10::function_ref<void(std::int64_t)> f) {
  if (pieces <= 0) return;
  if (pieces == 1 || workers_.empty() || inside_piece) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) f(piece);
    return;
  }
  // This thread takes pieces, too: ATen's threads would compete with the pool's.
  const AtenThreadsScope one(1);
  job_ = {.f = &f, .account = current_memory_account(), .pieces = pieces};
  unfinished_.store(static_cast<std::uint32_t>(pieces), std::memory_order_relaxed);
  const std::uint32_t number = number_.load(std::memory_order_relaxed) + 1;
  tickets_.store(std::uint64_t{number} << 32 | static_cast<std::uint64_t>(pieces),
                 std::memory_order_release);
  number_.store(number, std::memory_order_release);
  number_.notify_all();
  const auto began = std::chrono::steady_clock::now();
  take_pieces(number);
  const auto done = std::chrono::steady_clock::now();
  while (const std::uint32_t left = unfinished_.load(std::memory_order_acquire))
    wait_for_change(unfinished_, left);
  const auto ended = std::chrono::steady_clock::now();
  if (ended - began >= kMeasured) {
    const std::chrono::duration<double> waited = ended - done, whole = ended - began;
    const double before = idle_.load(std::memory_order_relaxed);
    idle_.store(before + kWeight * (waited / whole - before), std::memory_order_relaxed);
  }
  if (!failed_.load(std::memory_order_acquire)) return;
  failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work_until_stopped() {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  std::uint32_t number = 0;
  while (true) {
    wait_for_change(number_, number);
    number = number_.load(std::memory_order_acquire);
    if (stopped_.load(std::memory_order_relaxed)) return;
    take_pieces(number);
  }
}

void ThreadPool::take_pieces(std::uint32_t number) {
  std::uint64_t tickets = tickets_.load(std::memory_order_acquire);
  while (tickets >> 32 == number && (tickets & kPieces) > 0) {
    if (!tickets_.compare_exchange_weak(tickets, tickets - 1, std::memory_order_acq_rel,
                                        std::memory_order_acquire))
      continue;
    perform(job_.pieces - static_cast<std::int64_t>(tickets & kPieces));
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_all();
    tickets = tickets_.load(std::memory_order_acquire);
  }
}

void ThreadPool::perform(std::int64_t piece) {
  inside_piece = true;
  try {
    const AccountScope scope(job_.account, DeviceKind::kCpu);
    const at::NoGradGuard no_grad;
    (*job_.f)(piece);
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_acq_rel)) failure_ = std::current_exception();
  }
  inside_piece = false;
}

ThreadPoolScope::ThreadPoolScope(ThreadPool& pool, AtenThreads aten) : previous_(current_pool) {
  if (aten == AtenThreads::kOne) at::set_num_threads(1);
  current_pool = &pool;
}

ThreadPoolScope::~ThreadPoolScope() { current_pool = previous_; }

AtenThreadsScope::AtenThreadsScope(int threads) : before_(at::get_num_threads()) {
  if (threads == before_) {
    before_ = 0;
  } else {
    at::set_num_threads(threads);
  }
}

AtenThreadsScope::~AtenThreadsScope() {
  if (before_ > 0) at::set_num_threads(before_);
}

ThreadPool& thread_pool() {
  if (current_pool) return *current_pool;
  // The thread's own pool is busy.
  static thread_local ThreadPool alone(1);
  if (inside_piece) return alone;
  const int threads = at::get_num_threads();
  if (!own_pool || own_pool->threads() != threads) own_pool = std::make_unique<ThreadPool>(threads);
  return *own_pool;
}

}  // namespace strata
