#include "strata/rowserver/wire/outbox.h"

#include <chrono>
#include <utility>

namespace strata {
namespace {

constexpr std::chrono::milliseconds kHeartbeat{500};

}  // namespace

void Outbox::push(std::shared_ptr<const MessageBody> body) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  waiting_.push_back(std::move(body));
  changed_.notify_all();
}

void Outbox::set_durable(std::int64_t durable) {
  const std::lock_guard lock(mutex_);
  durable_ = durable;
  status_due_ = true;
  changed_.notify_all();
}

void Outbox::note_received() {
  const std::lock_guard lock(mutex_);
  ++received_;
}

void Outbox::close(std::shared_ptr<const MessageBody> last) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  waiting_.clear();
  last_word_ = last != nullptr;
  if (last) waiting_.push_back(std::move(last));
  closed_ = true;
  changed_.notify_all();
}

// Returns null when no message will follow.
std::shared_ptr<const MessageBody> Outbox::next(std::unique_lock<std::mutex>& lock) {
  changed_.wait_for(lock, kHeartbeat, [&] { return closed_ || status_due_ || !waiting_.empty(); });
  if (waiting_.empty()) {
    if (closed_) return nullptr;
    status_due_ = false;
    return std::make_shared<MessageBody>(
        MessageBody::of(Status{.durable = durable_, .received = received_}));
  }
  std::shared_ptr<const MessageBody> body = std::move(waiting_.front());
  waiting_.pop_front();
  return body;
}

void Outbox::send_all(FrameStream& stream) {
  std::int64_t number = 0;
  std::unique_lock lock(mutex_);
  while (const std::shared_ptr<const MessageBody> body = next(lock)) {
    lock.unlock();
    const FramePieces frame = body->pieces(number++);
    if (!stream.send_pieces(frame)) return stream.cancel();
    sent_(frame.size());
    lock.lock();
  }
  // The peer closes the stream when it has read the reason; cancelling here could lose it.
  const bool told = last_word_;
  lock.unlock();
  if (!told) stream.cancel();
}

}  // namespace strata
