#include "strata/http/http_exchange.h"

#include <utility>

namespace strata {

class HttpExchange::Responder final : public HttpResponder {
 public:
  explicit Responder(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~Responder() override {
    exchange_->answer({.status = 500, .body = "the handler sent no answer\n"});
  }
  void answer(HttpAnswer answer) override { exchange_->answer(std::move(answer)); }
  void on_closed(std::function<void()> closed) override { exchange_->on_closed(std::move(closed)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

class HttpExchange::Stream final : public HttpStream {
 public:
  explicit Stream(std::shared_ptr<HttpExchange> exchange) : exchange_(std::move(exchange)) {}
  ~Stream() override { exchange_->finish(false); }
  bool write(std::string bytes) override { return exchange_->write(std::move(bytes)); }
  void finish() override { exchange_->finish(true); }
  void on_closed(std::function<void()> closed) override { exchange_->on_closed(std::move(closed)); }

 private:
  const std::shared_ptr<HttpExchange> exchange_;
};

HttpExchange::HttpExchange(std::size_t stream_bytes, Thread thread)
    : stream_bytes_(stream_bytes), thread_(std::move(thread)) {}

std::shared_ptr<HttpResponder> HttpExchange::responder() {
  return std::make_shared<Responder>(shared_from_this());
}

std::shared_ptr<HttpStream> HttpExchange::stream() {
  return std::make_shared<Stream>(shared_from_this());
}

std::optional<HttpAnswer> HttpExchange::take_answer() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answer_, std::nullopt);
}

HttpExchange::Pieces HttpExchange::take_pieces() {
  const std::lock_guard lock(mutex_);
  unsent_ += queued_.size();
  return {.bytes = std::exchange(queued_, {}), .finished = finished_, .broken = broken_};
}

void HttpExchange::sent(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  unsent_ -= bytes;
}

void HttpExchange::client_left() {
  std::vector<std::function<void()>> closed;
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
    closed.swap(closed_);
  }
  for (const auto& call : closed) call();
}

void HttpExchange::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = answered_ = true;
    answer_.reset();
    queued_ = {};
  }
  client_left();
}

bool HttpExchange::is_overrun() {
  const std::lock_guard lock(mutex_);
  return overrun_;
}

void HttpExchange::answer(HttpAnswer answer) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(answered_, true)) return;
    answer_ = std::move(answer);
  }
  thread_.wake();
}

bool HttpExchange::write(std::string bytes) {
  bool accepted = false, wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || ended_) return false;
    accepted = queued_.size() + unsent_ < stream_bytes_;
    wakes = queued_.empty();  // else the connection has not looked since it was last woken
    if (accepted)
      queued_ += bytes;
    else
      finished_ = broken_ = overrun_ = wakes = true;
  }
  if (wakes) thread_.wake();
  return accepted;
}

void HttpExchange::finish(bool whole) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(finished_, true)) return;
    broken_ = !whole;
  }
  thread_.wake();
}

void HttpExchange::on_closed(std::function<void()> closed) {
  {
    const std::lock_guard lock(mutex_);
    if (!left_) {
      closed_.push_back(std::move(closed));
      return;
    }
  }
  if (!thread_.post(closed)) closed();
}

bool HttpExchanges::enter(const std::shared_ptr<HttpExchange>& exchange, bool while_draining) {
  const std::lock_guard lock(mutex_);
  if (draining_ && !while_draining) return false;
  (while_draining ? others_ : counted_).insert(exchange);
  return true;
}

void HttpExchanges::leave(const std::shared_ptr<HttpExchange>& exchange) {
  const std::lock_guard lock(mutex_);
  others_.erase(exchange);
  counted_.erase(exchange);
  if (counted_.empty()) idle_.notify_all();
}

void HttpExchanges::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool HttpExchanges::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

bool HttpExchanges::wait_idle(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return idle_.wait_until(lock, deadline, [this] { return counted_.empty(); });
}

int HttpExchanges::counted() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(counted_.size());
}

void HttpExchanges::end_all() {
  std::unordered_set<std::shared_ptr<HttpExchange>> all;
  {
    const std::lock_guard lock(mutex_);
    all = counted_;
    all.insert(others_.begin(), others_.end());
  }
  for (const auto& exchange : all) exchange->end();
}

}  // namespace strata
