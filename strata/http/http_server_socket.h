/// Reads and writes a connection's socket, with or without TLS, within limits of time.
///
/// Threads  the server's only. One read and one write may be under way.
#pragma once

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace strata {

inline constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

class HttpSocket {
 public:
  using Tcp = boost::asio::ip::tcp;
  using ErrorCode = boost::system::error_code;
  template <typename T>
  using Awaitable = boost::asio::awaitable<T>;

  HttpSocket(Tcp::socket socket, boost::asio::ssl::context* tls)
      : socket_(std::make_shared<Tcp::socket>(std::move(socket))), limit_(socket_->get_executor()) {
    if (tls) tls_.emplace(*socket_, *tls);
  }

  /// False: no TLS connection came about. Returns true at once without TLS.
  Awaitable<bool> shake_hands(std::chrono::milliseconds limit) {
    if (!tls_) co_return true;
    close_after(limit);
    const auto [error] =
        co_await tls_->async_handshake(boost::asio::ssl::stream_base::server, kAwait);
    limit_.cancel();
    co_return !error;
  }

  Awaitable<std::tuple<ErrorCode, std::size_t>> read_some(boost::asio::mutable_buffer buffer) {
    if (tls_) co_return co_await tls_->async_read_some(buffer, kAwait);
    co_return co_await socket_->async_read_some(buffer, kAwait);
  }

  /// Writes both. False: the client has gone, or has not read in time; the socket is closed.
  Awaitable<bool> write(std::string_view first, std::string_view second,
                        std::chrono::milliseconds limit) {
    const std::array buffers{boost::asio::const_buffer(first.data(), first.size()),
                             boost::asio::const_buffer(second.data(), second.size())};
    close_after(limit);
    ErrorCode error;
    if (tls_)
      std::tie(error, std::ignore) = co_await boost::asio::async_write(*tls_, buffers, kAwait);
    else
      std::tie(error, std::ignore) = co_await boost::asio::async_write(*socket_, buffers, kAwait);
    limit_.cancel();
    if (error) close();
    co_return !error;
  }

  /// Ends the direction to the client, with TLS after a notice that the data is complete.
  Awaitable<void> end_sending(std::chrono::milliseconds limit) {
    ErrorCode error;
    if (tls_) {
      close_after(limit);
      std::tie(error) = co_await tls_->async_shutdown(kAwait);
      limit_.cancel();
    }
    socket_->shutdown(Tcp::socket::shutdown_send, error);
  }

  void close() {
    ErrorCode error;
    socket_->close(error);
  }

 private:
  void close_after(std::chrono::milliseconds limit) {
    limit_.expires_after(limit);
    limit_.async_wait([socket = socket_](ErrorCode cancelled) {
      ErrorCode error;
      if (!cancelled) socket->close(error);
    });
  }

  // The timer's function may run after this object has gone.
  const std::shared_ptr<Tcp::socket> socket_;
  std::optional<boost::asio::ssl::stream<Tcp::socket&>> tls_;
  boost::asio::steady_timer limit_;
};

}  // namespace strata
