// The device's side of Strata on an emulated GPU: streams, events, the account of its memory, recordings.
//
// Work on the compute stream is done when it is given. Copies on other streams are done as late as can be: when
// somebody waits for them, or asks a second time whether they are done. What doesn't wait reads what was there
// before, and what writes too early spoils what is yet to be copied.
#include <c10/core/DeviceGuard.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"
#include "strata/device/account.h"
#include "strata/device/charge_map.h"
#include "strata/device/cuda_memory.h"
#include "strata/device/device.h"
#include "tests/emulated_gpu/memory.h"

namespace strata {
namespace {

class Queue;

// Behind the first `place` tasks of a queue.
class QueueEvent final : public PendingEvent {
 public:
  QueueEvent(std::shared_ptr<Queue> queue, std::int64_t place)
      : queue_(std::move(queue)), place_(place), seconds_(now_seconds()) {}
  bool query() const override;
  void synchronize() const override;
  double seconds_since(const PendingEvent& earlier) const override {
    return seconds_ - dynamic_cast<const QueueEvent&>(earlier).seconds_;
  }
  const PendingEvent* on_device() const override { return this; }

 private:
  std::shared_ptr<Queue> queue_;
  std::int64_t place_;
  double seconds_;
  mutable std::atomic<bool> asked_ = false;
};

class Queue final : public StreamQueue, public std::enable_shared_from_this<Queue> {
 public:
  explicit Queue(bool eager) : eager_(eager) {}
  ~Queue() override { done_until(given()); }

  Event record(EventTime) override {
    return Event(std::make_shared<QueueEvent>(shared_from_this(), given()));
  }
  void wait(const Event& event) override {
    give([event] { event.synchronize(); });
  }
  void synchronize() override { done_until(given()); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    give([=] {
      const emulated::DeviceWork work;
      std::memcpy(to, from, bytes);
    });
  }
  void* native() override { return this; }

  bool is_done(std::int64_t place) const { return done_ >= place; }
  void done_until(std::int64_t place) {
    if (is_done(place)) return;
    const std::lock_guard doing(doing_);  // one task after another, whoever waits for them
    while (!is_done(place)) {
      next()();
      ++done_;
    }
  }

 private:
  // Who records an event may hold the device: he must not wait for a task that waits for it.
  void give(std::function<void()> task) {
    if (eager_) return task();
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++given_;
  }
  std::function<void()> next() {
    const std::lock_guard lock(mutex_);
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    return task;
  }
  std::int64_t given() const {
    const std::lock_guard lock(mutex_);
    return given_;
  }

  const bool eager_;
  std::mutex doing_;
  mutable std::mutex mutex_;  // of the next two
  std::deque<std::function<void()>> tasks_;
  std::int64_t given_ = 0;
  std::atomic<std::int64_t> done_ = 0;
};

bool QueueEvent::query() const {
  if (asked_) queue_->done_until(place_);
  asked_ = true;
  return queue_->is_done(place_);
}
void QueueEvent::synchronize() const { queue_->done_until(place_); }

class Binding final : public DeviceBinding {
 public:
  explicit Binding(int index) { emulated::set_device(index); }
  ~Binding() override { emulated::set_device(previous_); }

 private:
  int previous_ = emulated::current_device();
};

class EmulatedBackend final : public DeviceBackend {
 public:
  int count() const override { return emulated::device_count(); }
  std::string why_none() const override { return count() > 0 ? "" : "no emulated device"; }
  DeviceFacts facts(int index) const override {
    require(index);
    DeviceFacts facts{.name = "Emulated GPU",
                      .bytes = emulated::kDeviceBytes,
                      .multiprocessors = 1,
                      .capability = "0.0"};
    for (int peer = 0; peer < count(); ++peer)
      if (peer != index) facts.peers.push_back(peer);
    return facts;
  }
  std::shared_ptr<StreamQueue> make_queue(int index) const override {
    require(index);
    return std::make_shared<Queue>(/*eager=*/false);
  }
  std::shared_ptr<StreamQueue> compute_queue(int index) const override {
    require(index);
    static auto& queues = *new std::vector<std::shared_ptr<Queue>>([this] {
      std::vector<std::shared_ptr<Queue>> made;
      for (int i = 0; i < count(); ++i) made.push_back(std::make_shared<Queue>(/*eager=*/true));
      return made;
    }());
    return queues[index];
  }
  std::unique_ptr<DeviceBinding> bind(int index) const override {
    require(index);
    return std::make_unique<Binding>(index);
  }
  bool enable_peer_access(int, int) const override { return true; }
  void register_host_memory(void*, std::size_t) const override {}
  void unregister_host_memory(void*) const override {}
};

}  // namespace

const DeviceBackend& cuda_backend() {
  static const EmulatedBackend backend;
  return backend;
}

void trace_cuda_memory(ChargeMap& charges) {
  emulated::set_trace({.allocated =
                           [&charges](const void* address, std::int64_t bytes) {
                             charges.allocated(address, bytes,
                                               current_memory_account(DeviceKind::kCuda));
                           },
                       .freed = [&charges](const void* address) { charges.freed(address); }});
}

DeviceMemory cuda_memory(int index) {
  const std::int64_t bytes = emulated::allocated_bytes(index);
  return {.requested_bytes = bytes,
          .allocated_bytes = bytes,
          .reserved_bytes = bytes,
          .total_bytes = emulated::kDeviceBytes};
}

void limit_cuda_memory(int index, std::int64_t bytes) { emulated::limit_bytes(index, bytes); }

}  // namespace strata
