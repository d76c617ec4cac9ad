/// Sends a server's messages on one stream: answers in their order, and statuses when it has no
/// answers to send.
///
/// Threads  send_all(): one, until the stream or the outbox ends; the rest: any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "strata/rowserver/wire/frame_stream.h"
#include "strata/rowserver/wire/wire_messages.h"

namespace strata {

class Outbox {
 public:
  /// `sent`: called after each message with its number of bytes.
  explicit Outbox(std::function<void(std::size_t)> sent) : sent_(std::move(sent)) {}

  void push(std::shared_ptr<const MessageBody> body);
  void set_durable(std::int64_t durable);  ///< is said at once
  void note_received();                    ///< one more message: is said in the next status
  /// Sends `last`, if there is one, and nothing else.
  void close(std::shared_ptr<const MessageBody> last = nullptr);

  /// Returns when no more can be sent.
  void send_all(FrameStream& stream);

 private:
  std::shared_ptr<const MessageBody> next(std::unique_lock<std::mutex>& lock);

  const std::function<void(std::size_t)> sent_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<const MessageBody>> waiting_;
  std::int64_t durable_ = 0, received_ = 0;
  bool status_due_ = false, closed_ = false, last_word_ = false;
};

}  // namespace strata
