// Streams that are queues in this process and lose messages as configured.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "strata/rowserver/wire/frame_stream.h"

namespace strata {

// A queue of frames that breaks, loses, repeats and delays as configured.
class FaultyPipe {
 public:
  explicit FaultyPipe(std::uint64_t seed, int faults_per_1000)
      : random_(seed), faults_(faults_per_1000) {}
  bool send(const WireFrame& frame) {
    std::unique_lock lock(mutex_);
    if (broken_) return false;
    const auto fate = static_cast<int>(random_() % 1000);
    if (fate >= faults_ || frame.empty()) {
      frames_.push_back(frame);
    } else {
      switch (fate % 5) {
        case 0:
          break;  // lost
        case 1:
          frames_.push_back(frame);  // twice
          frames_.push_back(frame);
          break;
        case 2:
          frames_.push_back(frame);
          frames_.back()[random_() % frame.size()] ^= std::byte{4};
          break;
        case 3:
          broken_ = true;
          break;
        case 4:
          lock.unlock();
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
          lock.lock();
          frames_.push_back(frame);
      }
    }
    changed_.notify_all();
    return !broken_;
  }
  bool receive(WireFrame& frame) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return broken_ || !frames_.empty(); });
    if (frames_.empty()) return false;
    frame = std::move(frames_.front());
    frames_.pop_front();
    return true;
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    changed_.notify_all();
  }
  bool alive() {
    const std::lock_guard lock(mutex_);
    return !broken_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WireFrame> frames_;
  bool broken_ = false;
  std::mt19937_64 random_;
  int faults_;
};

class PipeStream : public FrameStream {
 public:
  PipeStream(std::shared_ptr<FaultyPipe> out, std::shared_ptr<FaultyPipe> in)
      : out_(std::move(out)), in_(std::move(in)) {}
  ~PipeStream() override { PipeStream::cancel(); }
  bool send(const WireFrame& frame) override { return out_->send(frame); }
  bool receive(WireFrame& frame) override { return in_->receive(frame); }
  void cancel() override { out_->cancel(), in_->cancel(); }
  void close() { out_->cancel(); }  // frames that were sent still arrive
  bool alive() override { return out_->alive() && in_->alive(); }

 private:
  std::shared_ptr<FaultyPipe> out_, in_;
};

}  // namespace strata
