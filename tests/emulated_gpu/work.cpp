#include "tests/emulated_gpu/work.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "strata/base/measurement.h"
#include "strata/device/recording.h"
#include "strata/device/simt/simt.h"
#include "tests/emulated_gpu/memory.h"

namespace strata::emulated {
namespace {

using Work = std::function<void()>;

class Queue;

struct Capture {
  std::vector<Work> works;
};
thread_local Capture* capture = nullptr;

// An event after the first `place` tasks of a queue.
class QueueEvent final : public DeviceEvent {
 public:
  QueueEvent(std::shared_ptr<Queue> queue, std::int64_t place, const Capture* recorded,
             std::shared_ptr<const double> happened)
      : queue_(std::move(queue)),
        place_(place),
        recorded_(recorded),
        happened_(std::move(happened)) {}
  bool ready() const override;
  void wait() const override;
  double seconds_since(const DeviceEvent& earlier) const override {
    return *happened_ - *dynamic_cast<const QueueEvent&>(earlier).happened_;
  }
  const DeviceEvent* on_device() const override { return this; }
  const Capture* recorded() const { return recorded_; }
  void done() const;

 private:
  std::shared_ptr<Queue> queue_;
  std::int64_t place_;
  const Capture* recorded_;                 // it is a position in this recording, not in the queue
  std::shared_ptr<const double> happened_;  // in seconds, if it is timed
  mutable std::atomic<bool> requested_ = false;
};

class Queue final : public StreamQueue, public std::enable_shared_from_this<Queue> {
 public:
  explicit Queue(bool computes) : computes_(computes) {}
  ~Queue() override { done_until(enqueued()); }

  Completion record(EventTime time) override {
    const auto happened = std::make_shared<double>(0);
    if (time == EventTime::kKnown && !recording()) push([happened] { *happened = now_seconds(); });
    return Completion(std::make_shared<QueueEvent>(shared_from_this(), enqueued(),
                                                   computes_ ? capture : nullptr, happened));
  }
  void wait(const Completion& event) override {
    if (!event.source()) return;
    const auto* of_queue = dynamic_cast<const QueueEvent*>(on_device(event));
    if (!of_queue) {  // an event of the host: no work may be enqueued before it
      refuse_while_recording("an event of the host");
      return event.wait();
    }
    const Capture* recording = computes_ ? capture : nullptr;
    TORCH_CHECK(of_queue->recorded() == recording,
                "operation would make the legacy stream depend on a capturing one (emulated)");
    // Pushed without waiting, because the awaited work needs the device.
    if (!recording) push([event, of_queue] { of_queue->done(); });
  }
  void synchronize() override {
    if (computes_) refuse_while_recording("cudaStreamSynchronize");
    done_until(enqueued());
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    give([=] { std::memcpy(to, from, bytes); });
  }
  bool recording() const override { return computes_ && capture != nullptr; }
  void* native() override { return this; }

  void give(Work work) {
    if (computes_ && capture) {
      capture->works.push_back(std::move(work));
      return;
    }
    push([work = std::move(work)] {
      const DeviceWork open;
      work();
    });
    static const bool eager = std::getenv("STRATA_EMULATED_EAGER") != nullptr;
    if (eager && computes_) done_until(enqueued());
  }

  bool is_done(std::int64_t place) const {
    const std::lock_guard lock(mutex_);
    return done_ >= place;
  }
  // Runs one task after another; a thread that waits for an earlier task continues as soon as it is
  // done.
  void done_until(std::int64_t place) {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return done_ >= place || !busy_; });
      if (done_ >= place) return;
      const Work task = std::move(tasks_.front());
      tasks_.pop_front();
      busy_ = true;
      lock.unlock();
      const auto over = [&] {
        lock.lock();
        busy_ = false;
        ++done_;
        changed_.notify_all();
      };
      try {
        task();
      } catch (...) {
        over();  // wakes other waiting threads
        throw;
      }
      over();
    }
  }

 private:
  void push(Work task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++enqueued_;
  }
  std::int64_t enqueued() const {
    const std::lock_guard lock(mutex_);
    return enqueued_;
  }

  const bool computes_;
  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::deque<Work> tasks_;
  std::int64_t enqueued_ = 0, done_ = 0;
  bool busy_ = false;
};

void QueueEvent::done() const { queue_->done_until(place_); }
bool QueueEvent::ready() const {
  refuse_while_recording("cudaEventQuery");
  if (requested_) done();
  requested_ = true;
  return queue_->is_done(place_);
}
void QueueEvent::wait() const {
  refuse_while_recording("cudaEventSynchronize");
  done();
}

Queue& computing(int index) {
  static auto& queues = *new std::vector<std::shared_ptr<Queue>>([] {
    std::vector<std::shared_ptr<Queue>> made;
    for (int i = 0; i < device_count(); ++i) made.push_back(std::make_shared<Queue>(true));
    return made;
  }());
  return *queues.at(static_cast<std::size_t>(index));
}

class LockedMemory {
 public:
  void add(const void* begin, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[static_cast<const std::byte*>(begin)] = bytes;
  }
  void remove(const void* begin) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(static_cast<const std::byte*>(begin));
  }
  bool holds(const void* address) {
    const std::lock_guard lock(mutex_);
    const auto* at = static_cast<const std::byte*>(address);
    const auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(after);
    return at < begin + bytes;
  }

 private:
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> ranges_;
};

LockedMemory& locked() {
  static auto& all = *new LockedMemory;
  return all;
}

class EmulatedRecording final : public Recording {
 public:
  void record(std::function<void()> work) override {
    TORCH_CHECK(capture == nullptr, "a stream records already (emulated)");
    capture = capture_.get();
    pool_ = begin_pool();
    try {
      work();
    } catch (...) {
      end();
      throw;
    }
    end();
    replay();
  }
  void replay() override {
    give([recorded = capture_] {
      for (const Work& work : recorded->works) work();
    });
  }

 private:
  void end() {
    capture = nullptr;
    end_pool();
  }

  std::shared_ptr<Capture> capture_ = std::make_shared<Capture>();
  std::shared_ptr<Pool> pool_;  // the memory of the work, in no other use
};

[[maybe_unused]] const bool launches_here = (simt::host_device_launch = &give, true);

}  // namespace

void give(Work work) { give_to(current_device(), std::move(work)); }
void give_to(int device, Work work) { computing(device).give(std::move(work)); }
void synchronize() { computing(current_device()).synchronize(); }
bool is_recording() { return capture != nullptr; }
void refuse_while_recording(const char* what) {
  TORCH_CHECK(!is_recording(),
              "operation not permitted when stream is capturing (emulated): ", what);
}

at::Tensor on_host(const at::Tensor& x) {
  if (!x.defined() || !x.is_cuda()) return x;
  return at::from_blob(const_cast<void*>(x.unsafeGetTensorImpl()->data()), x.sizes(), x.strides(),
                       x.options().device(at::kCPU));
}

void lock_host_memory(const void* begin, std::size_t bytes) { locked().add(begin, bytes); }
void unlock_host_memory(const void* begin) { locked().remove(begin); }
bool is_locked(const void* address) { return locked().holds(address); }

std::shared_ptr<StreamQueue> compute_queue(int index) {
  return computing(index).shared_from_this();
}
std::shared_ptr<StreamQueue> make_queue() { return std::make_shared<Queue>(false); }

}  // namespace strata::emulated

namespace strata {

std::unique_ptr<Recording> make_cuda_recording() {
  return std::make_unique<emulated::EmulatedRecording>();
}

}  // namespace strata
