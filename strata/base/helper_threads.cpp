#include "strata/base/helper_threads.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>

namespace strata {
namespace {

// A loop that its caller and helpers share. It outlives run() for helpers that come too late.
class Loop {
 public:
  Loop(std::size_t n, const std::function<void(std::size_t)>& body) : n_(n), body_(&body) {}

  // Runs iterations until none is left.
  void join() {
    std::unique_lock lock(mutex_);
    ++running_;
    while (next_ < n_) {
      const std::size_t i = next_++;
      lock.unlock();
      std::exception_ptr error;
      try {
        (*body_)(i);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (!error) continue;
      if (!error_) error_ = error;
      next_ = n_;
    }
    if (--running_ == 0) ended_.notify_all();
  }

  // Waits for the threads that have joined. A thread that joins later finds no iteration left.
  void wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return running_ == 0; });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t n_, next_ = 0;
  int running_ = 0;
  const std::function<void(std::size_t)>* body_;  // valid while iterations are left
  std::exception_ptr error_;
};

}  // namespace

HelperThreads::HelperThreads(int threads) {
  for (int i = 1; i < threads; ++i)
    helpers_.push_back(std::make_unique<Executor>(ExecutorOptions{.name = "helper"}));
}

void HelperThreads::run(std::size_t n, const std::function<void(std::size_t)>& body) {
  const std::size_t helpers = std::min(helpers_.size(), n > 0 ? n - 1 : 0);
  if (helpers == 0) {
    for (std::size_t i = 0; i < n; ++i) body(i);
    return;
  }
  const auto loop = std::make_shared<Loop>(n, body);
  for (std::size_t i = 0; i < helpers; ++i) helpers_[i]->submit([loop] { loop->join(); });
  loop->join();
  loop->wait();
}

double HelperThreads::take_processor_seconds() {
  double seconds = 0;
  for (const auto& helper : helpers_) seconds += helper->take_processor_seconds();
  return seconds;
}

}  // namespace strata
