// One thread per request in flight, up to eight: a disk gains little from more parallel requests,
// and each thread needs a stack.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "strata/disk/block_io.h"

namespace strata {
namespace {

constexpr int kMostThreads = 8;

class ThreadBlockIo final : public BlockIo {
 public:
  ThreadBlockIo(const BlockIoSetup& setup, std::string why) : descriptor_(setup.descriptor) {
    probe_.why_threads = std::move(why);
    for (int i = 0; i < std::min(setup.depth, kMostThreads); ++i)
      threads_.emplace_back([this] { work(); });
  }

  ~ThreadBlockIo() override {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    has_requests_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(const BlockRequest& request) override {
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    has_requests_.notify_one();
  }

  void wait(std::vector<BlockResult>& results) override {
    std::unique_lock lock(mutex_);
    has_results_.wait(lock, [this] { return woken_ || !results_.empty(); });
    woken_ = false;
    results.insert(results.end(), results_.begin(), results_.end());
    results_.clear();
  }

  void wake() override {
    {
      const std::lock_guard lock(mutex_);
      woken_ = true;
    }
    has_results_.notify_one();
  }

  const BlockIoProbe& probe() const override { return probe_; }

 private:
  std::int64_t perform(const BlockRequest& request) const {
    const iovec part{.iov_base = request.bytes.data(), .iov_len = request.bytes.size()};
    const auto offset = static_cast<::off_t>(request.offset);
    const std::int64_t result = request.op == BlockOp::kSync ? ::fdatasync(descriptor_)
                                : request.op == BlockOp::kRead
                                    ? ::preadv(descriptor_, &part, 1, offset)
                                    : ::pwritev(descriptor_, &part, 1, offset);
    return result < 0 ? -errno : result;
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      has_requests_.wait(lock, [this] { return stopped_ || !requests_.empty(); });
      if (requests_.empty()) return;  // stopped, and all requests have ended
      const BlockRequest request = requests_.front();
      requests_.pop_front();
      lock.unlock();
      const std::int64_t result = perform(request);
      lock.lock();
      results_.push_back({.slot = request.slot, .result = result});
      has_results_.notify_one();
    }
  }

  const int descriptor_;
  std::mutex mutex_;
  std::condition_variable has_requests_, has_results_;
  std::deque<BlockRequest> requests_;
  std::vector<BlockResult> results_;
  bool woken_ = false;
  bool stopped_ = false;
  BlockIoProbe probe_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockIo> thread_block_io(const BlockIoSetup& setup, std::string why_threads) {
  return std::make_unique<ThreadBlockIo>(setup, std::move(why_threads));
}

}  // namespace strata
