// One thread connects and sends, another thread receives while a connection exists. The number of
// the next message shows that a stream has lost one. If the last message before a pause is lost,
// the server's count of received messages shows it, which comes with every status, twice a second.
#include "strata/rowserver/wire/remote_channel.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{500};

}  // namespace

RemoteChannel::RemoteChannel(RemoteChannelOptions options, ConnectStream connect)
    : options_(std::move(options)),
      connect_(std::move(connect)),
      durable_(options_.hello.begin),
      wait_(options_.wait),
      working_([this] { work(); }) {}

RemoteChannel::~RemoteChannel() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (stream_ && !welcomed_) stream_->cancel();
  }
  changed_.notify_all();
  working_.join();
}

void RemoteChannel::stop_waiting() {
  {
    const std::lock_guard lock(mutex_);
    if (welcomed_ || failure_) return;
  }
  fail(to_exception(wait_.stopped()));
  const std::lock_guard lock(mutex_);
  if (stream_) stream_->cancel();
}

void RemoteChannel::ask(MessageKind kind, Request request, std::int64_t oldest, Answer answer) {
  {
    const std::lock_guard lock(mutex_);
    request.id = next_id_++;
    request.answered_below = order_of_.empty() ? request.id : order_of_.begin()->first;
  }
  // Encodes megabytes of ids before taking the mutex, so that answers are not delayed.
  MessageBody body = MessageBody::of(kind, request);
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  order_of_[request.id] = next_order_;
  entries_.emplace(
      next_order_++,
      Entry{.body = std::move(body),
            .part = false,
            .version = oldest,
            .id = request.id,
            .reads = std::make_shared<std::vector<FeatureRead>>(std::move(request.reads)),
            .answer = std::move(answer)});
  changed_.notify_all();
}

void RemoteChannel::read(std::vector<FeatureRead> reads, Answer answer) {
  std::int64_t oldest = INT64_MAX;
  for (const FeatureRead& read : reads) oldest = std::min(oldest, read.version);
  Request request;
  request.reads = std::move(reads);
  ask(MessageKind::kRead, std::move(request), oldest, std::move(answer));
}

void RemoteChannel::when_reached(std::int64_t version, Done done) {
  Request request;
  request.version = version;
  ask(MessageKind::kReached, std::move(request), version,
      [done = std::move(done)](const std::vector<FeatureRows>&, std::exception_ptr error) {
        done(std::move(error));
      });
}

void RemoteChannel::save(std::int64_t version, Done done) {
  Request request;
  request.version = version;
  ask(MessageKind::kSave, std::move(request), version,
      [done = std::move(done)](const std::vector<FeatureRows>&, std::exception_ptr error) {
        done(std::move(error));
      });
}

void RemoteChannel::update(std::int64_t version, UpdatePart part) {
  MessageBody body =
      MessageBody::of_part(version, part, options_.features, options_.hello.wire.gradients);
  const auto bytes = static_cast<std::int64_t>(body.bytes());
  Lock lock(mutex_);
  changed_.wait(lock, [&] {
    return failure_ || part_bytes_ == 0 || part_bytes_ + bytes <= options_.credit_bytes;
  });
  if (failure_) std::rethrow_exception(failure_);
  part_bytes_ += bytes;
  entries_.emplace(next_order_++, Entry{.body = std::move(body),
                                        .part = true,
                                        .version = version,
                                        .id = 0,
                                        .reads = nullptr,
                                        .answer = {}});
  changed_.notify_all();
}

ChannelCounts RemoteChannel::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void RemoteChannel::fail(const std::exception_ptr& error) {
  std::map<std::uint64_t, Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
    entries.swap(entries_);
    order_of_.clear();
  }
  changed_.notify_all();
  for (auto& [order, entry] : entries)
    if (entry.answer) entry.answer({}, error);
}

// Publishes the stream while other threads may cancel it.
class RemoteChannel::Current {
 public:
  Current(RemoteChannel& channel, FrameStream* stream) : channel_(channel) { set(stream); }
  ~Current() { set(nullptr); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  void set(FrameStream* stream) {
    const std::lock_guard lock(channel_.mutex_);
    channel_.stream_ = stream;
    channel_.welcomed_ = false;
    if (stream && (channel_.stopped_ || channel_.failure_)) stream->cancel();
  }
  RemoteChannel& channel_;
};

void RemoteChannel::work() {
  std::chrono::milliseconds pause = kFirstPause;
  std::string reason = "no answer";
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_ || failure_) return;
    }
    try {
      const std::unique_ptr<FrameStream> stream = connect_();
      const Current current(*this, stream.get());
      if (converse(*stream)) {
        wait_.restart();
        pause = kFirstPause;
      }
    } catch (const UserError&) {
      return fail(std::current_exception());
    } catch (const std::exception& error) {
      reason = to_error(error).text().what;
    }
    Lock lock(mutex_);
    if (stopped_ || failure_) return;
    lock.unlock();
    if (wait_.is_over()) return fail(to_exception(wait_.error(reason)));
    wait_.say(reason);
    lock.lock();
    changed_.wait_for(lock, pause, [&] { return stopped_; });
    pause = std::min(2 * pause, kLongestPause);
  }
}

WireFrame RemoteChannel::hello_frame() const {
  Hello hello = options_.hello;
  hello.durable = durable_;
  hello.requests = static_cast<std::int64_t>(order_of_.size());
  for (const auto& [order, entry] : entries_)
    if (!entry.part && (hello.oldest < 0 || entry.version < hello.oldest))
      hello.oldest = entry.version;
  return MessageBody::of(hello).frame(0);
}

// Sends and receives until the stream breaks; returns whether the server welcomed this rank.
bool RemoteChannel::converse(FrameStream& stream) {
  Lock lock(mutex_);
  const WireFrame hello = hello_frame();
  welcomed_ = broken_ = false;
  // Entries added while the hello is being sent follow it: the hello states the number of earlier
  // requests.
  next_send_ = entries_.empty() ? next_order_ : entries_.begin()->first;
  sent_ = 1;
  sent_at_mark_ = 0;
  lock.unlock();
  if (!stream.send(hello)) return false;
  lock.lock();
  heard_ = marked_ = Clock::now();
  ++counts_.connections;
  counts_.sent_bytes += static_cast<std::int64_t>(hello.size());
  lock.unlock();
  std::thread receiving([&] { receive_all(stream); });
  lock.lock();
  send_all(stream, lock);
  lock.unlock();
  stream.cancel();
  receiving.join();
  lock.lock();
  return welcomed_;
}

void RemoteChannel::send_all(FrameStream& stream, Lock& lock) {
  Clock::time_point spoke = Clock::now();
  while (!broken_ && !failure_) {
    const auto next = entries_.lower_bound(next_send_);
    const bool any = welcomed_ && next != entries_.end();
    if (!any && stopped_) break;
    if (!any) {
      changed_.wait_for(lock, std::chrono::milliseconds(100));
      // A server that waits for other ranks after a restart is silent before its welcome.
      if (welcomed_ && Clock::now() - heard_ > options_.silence) return;
      if (!welcomed_ && Clock::now() - heard_ > options_.wait.deadline) return;
      if (!welcomed_) {
        lock.unlock();
        wait_.say("it has not let this rank in yet");
        lock.lock();
      }
      if (!welcomed_ || Clock::now() - spoke < options_.alive_every) continue;
      spoke = Clock::now();
      const WireFrame alive = MessageBody::alive().frame(sent_++);
      lock.unlock();
      const bool sent = stream.send(alive);
      lock.lock();
      counts_.sent_bytes += static_cast<std::int64_t>(alive.size());
      if (!sent) return;
      continue;
    }
    spoke = Clock::now();
    next_send_ = next->first + 1;
    const MessageBody body = next->second.body;
    const std::int64_t number = sent_++;
    lock.unlock();
    const FramePieces frame = body.pieces(number);
    const bool sent = stream.send_pieces(frame);
    lock.lock();
    counts_.sent_bytes += static_cast<std::int64_t>(frame.size());
    if (!sent) return;
  }
  if (!stopped_ || broken_ || failure_ || !welcomed_) return;
  const WireFrame bye = MessageBody::bye().frame(sent_++);
  lock.unlock();
  stream.send(bye);
  lock.lock();
  // The server ends the stream after it has read the bye; if this side ended it first, the bye
  // could be lost.
  changed_.wait_for(lock, std::chrono::seconds(10), [&] { return broken_; });
}

void RemoteChannel::receive_all(FrameStream& stream) {
  try {
    WireFrame frame;
    for (std::int64_t expected = 0; stream.receive(frame);) {
      const WireMessage message(frame);
      {
        const std::lock_guard lock(mutex_);
        counts_.received_bytes += static_cast<std::int64_t>(frame.size());
        heard_ = Clock::now();
      }
      if (message.number() < expected) continue;
      if (message.number() > expected && message.kind() != MessageKind::kRefused) break;
      ++expected;
      take(message);
    }
  } catch (const std::exception& error) {
    // Damaged in transit: the next connection carries it again.
    if (to_error(error).text().operation != "embed.decode") fail(std::current_exception());
  }
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
  }
  changed_.notify_all();
}

void RemoteChannel::take(const WireMessage& message) {
  switch (message.kind()) {
    case MessageKind::kWelcome: {
      message.welcome();
      const std::lock_guard lock(mutex_);
      welcomed_ = true;
      changed_.notify_all();
      return;
    }
    case MessageKind::kRows:
    case MessageKind::kDone:
    case MessageKind::kFailed:
      return settle(message);
    case MessageKind::kStatus:
      return take_status(message.status());
    case MessageKind::kRefused:
      return fail(message.error());
    default:
      throw SystemError({.operation = "embed.decode",
                         .what = "a server sends what only ranks send",
                         .expected = "an answer",
                         .got = "kind " + std::to_string(static_cast<int>(message.kind())),
                         .fix = "start servers and trainers with the same program"});
  }
}

// An answer that cannot be read leaves its request in place, and the request is sent again.
void RemoteChannel::settle(const WireMessage& message) {
  std::shared_ptr<std::vector<FeatureRead>> requested;
  {
    const std::lock_guard lock(mutex_);
    const auto order = order_of_.find(message.id());
    if (order == order_of_.end()) return;  // answered before
    requested = entries_.at(order->second).reads;
  }
  std::exception_ptr error;
  if (message.kind() == MessageKind::kFailed) error = message.error();
  std::vector<FeatureRows> rows;
  if (message.kind() == MessageKind::kRows) rows = message.rows(options_.features, *requested);
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    const auto order = order_of_.find(message.id());
    if (order == order_of_.end()) return;  // ended meanwhile
    const auto entry = entries_.find(order->second);
    answer = std::move(entry->second.answer);
    entries_.erase(entry);
    order_of_.erase(order);
  }
  answer(std::move(rows), std::move(error));
}

void RemoteChannel::take_status(const Status& status) {
  const std::lock_guard lock(mutex_);
  durable_ = std::max(durable_, status.durable);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool settled = it->second.part && it->second.version <= durable_;
    if (settled) part_bytes_ -= static_cast<std::int64_t>(it->second.body.bytes());
    it = settled ? entries_.erase(it) : std::next(it);
  }
  // The server should have received messages sent that long ago before it wrote this status.
  if (Clock::now() - marked_ > options_.silence) {
    if (status.received < sent_at_mark_) broken_ = true;
    sent_at_mark_ = sent_;
    marked_ = Clock::now();
  }
  changed_.notify_all();
}

}  // namespace strata
