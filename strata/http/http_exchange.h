/// Holds what a handler and a connection share about one request: its answer, the queued pieces of
/// a stream, and the functions to call when the client has left.
///
/// Threads  HttpExchanges and the handles: any. The other methods: the server's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "strata/http/routes.h"

namespace strata {

class HttpExchange : public std::enable_shared_from_this<HttpExchange> {
 public:
  struct Thread {
    std::function<void()> wake;  ///< makes the connection look at take_answer() and take_pieces()
    /// Runs a function on the server's thread, later; false: the server has ended.
    std::function<bool(std::function<void()>)> post;
  };
  struct Pieces {
    std::string bytes;
    bool finished = false;  ///< no more bytes will come
    bool broken = false;    ///< nor will finish(): the body is incomplete
  };

  HttpExchange(std::size_t stream_bytes, Thread thread);

  /// The handles of a handler; one of each.
  std::shared_ptr<HttpResponder> responder();
  std::shared_ptr<HttpStream> stream();

  std::optional<HttpAnswer> take_answer();  ///< none yet, or consumed
  Pieces take_pieces();                     ///< the returned bytes count until sent()
  void sent(std::size_t bytes);
  void client_left();  ///< calls what is registered; answers and pieces are still accepted
  void end();          ///< the same, and nothing is accepted any more
  bool is_overrun();   ///< the client reads too slowly for its stream

 private:
  class Responder;
  class Stream;
  void answer(HttpAnswer answer);
  bool write(std::string bytes);
  void finish(bool whole);
  void on_closed(std::function<void()> closed);

  const std::size_t stream_bytes_;
  const Thread thread_;
  std::mutex mutex_;
  std::optional<HttpAnswer> answer_;
  bool answered_ = false;
  std::string queued_;
  std::size_t unsent_ = 0;  // bytes that take_pieces() returned
  bool finished_ = false, broken_ = false, overrun_ = false;
  bool left_ = false, ended_ = false;
  std::vector<std::function<void()>> closed_;
};

/// Counts the exchanges of a server, and refuses new ones while it drains.
class HttpExchanges {
 public:
  bool enter(const std::shared_ptr<HttpExchange>& exchange, bool while_draining);
  void leave(const std::shared_ptr<HttpExchange>& exchange);
  void drain();
  bool draining() const;
  bool wait_idle(std::chrono::steady_clock::time_point deadline);
  int counted() const;
  void end_all();  ///< ends every exchange; the server's thread must have ended

 private:
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::unordered_set<std::shared_ptr<HttpExchange>> counted_, others_;
  bool draining_ = false;
};

}  // namespace strata
