// One coroutine accepts, and each connection is a coroutine that reads a request, waits for its
// handler, and writes the answer. All of them run on one thread, so they share state without locks.
#include "strata/http/http_server.h"

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "strata/base/errors.h"
#include "strata/transport/host_address.h"

namespace strata {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr std::chrono::seconds kResolving{2};
constexpr std::chrono::milliseconds kAcceptPause{100};  // after a failure: no descriptor is free
constexpr std::chrono::seconds kLinger{1};              // for the client to read the last answer
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

using Parser = http::request_parser<http::string_body>;
using Response = http::response<http::string_body>;

[[noreturn]] void refuse(const HttpListen& listen, const std::string& got) {
  throw UserError({.operation = "http.listen",
                   .where = listen.host + ":" + std::to_string(listen.port),
                   .what = "the server cannot listen there",
                   .expected = "an address of this machine with a free port",
                   .got = got,
                   .fix = "choose another port, or end the process that uses this one"});
}

tcp::endpoint endpoint_of(const HttpListen& listen) {
  const HostAddress address =
      resolve(listen.host, listen.port, std::chrono::steady_clock::now() + kResolving).front();
  tcp::endpoint endpoint;
  endpoint.resize(address.length);
  std::memcpy(endpoint.data(), address.get(), address.length);
  return endpoint;
}

tcp::acceptor listen_at(asio::io_context& context, const HttpListen& listen) {
  tcp::acceptor acceptor(context);
  try {
    const tcp::endpoint endpoint = endpoint_of(listen);
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
  } catch (const boost::system::system_error& error) {
    refuse(listen, error.code().message());
  }
  return acceptor;
}

HttpRequest request_of(Parser& parser) {
  const auto& message = parser.get();
  const std::string target(message.target());
  const std::size_t question = target.find('?');
  HttpRequest request{.method = std::string(message.method_string()),
                      .path = target.substr(0, question),
                      .query = {},
                      .body = std::move(parser.get().body())};
  if (question != std::string::npos) request.query = target.substr(question + 1);
  return request;
}

// The answer to a request that could not be read; none: the client is gone, or too slow.
std::optional<HttpAnswer> answer_to_misfit(const boost::system::error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return HttpAnswer{.status = 431, .body = "the header is too long\n"};
  if (error == http::error::body_limit)
    return HttpAnswer{.status = 413, .body = "the body is too long\n"};
  if (error == http::error::end_of_stream || error == http::error::partial_message)
    return std::nullopt;
  static const boost::system::error_category& kHttp =
      http::make_error_code(http::error::bad_target).category();
  if (error.category() != kHttp) return std::nullopt;
  return HttpAnswer{.status = 400, .body = "the request is malformed: " + error.message() + '\n'};
}

Response response_of(HttpAnswer answer, bool keep_alive, bool is_head) {
  Response response{static_cast<http::status>(answer.status), 11};
  response.set(http::field::content_type, answer.type);
  response.set(http::field::cache_control, "no-store");
  if (!answer.allow.empty()) response.set(http::field::allow, answer.allow);
  response.keep_alive(keep_alive);
  if (!is_head) response.body() = std::move(answer.body);
  response.prepare_payload();
  return response;
}

}  // namespace

struct HttpServer::Parts {
  Parts(HttpListen what, HttpRoutes table)
      : listen(std::move(what)),
        routes(std::move(table)),
        handlers(static_cast<std::size_t>(listen.limits.handler_threads)),
        acceptor(listen_at(context, listen)),
        room(context),
        thread([this] {
          asio::co_spawn(context, accept(), asio::detached);
          context.run();
        }) {}

  ~Parts() {
    stopped = true;
    context.stop();
    thread.join();
    handlers.join();
  }

  asio::awaitable<void> accept();
  asio::awaitable<void> converse(beast::tcp_stream stream);
  asio::awaitable<bool> exchange(beast::tcp_stream& stream, beast::flat_buffer& buffer);
  asio::awaitable<HttpAnswer> handle(const HttpRequest& request);
  asio::awaitable<bool> write(beast::tcp_stream& stream, Response response);

  const HttpListen listen;
  const HttpRoutes routes;
  std::atomic<bool> stopped = false;
  std::atomic<int> open = 0;
  // After the coroutines, which hold work of it: the context, whose destructor ends them, is
  // destroyed first.
  asio::thread_pool handlers;
  asio::io_context context{1};
  tcp::acceptor acceptor;
  asio::steady_timer room;  // cancelled when a connection closes
  std::thread thread;
};

asio::awaitable<void> HttpServer::Parts::accept() {
  for (;;) {
    while (open >= listen.limits.connections) {
      room.expires_at(asio::steady_timer::time_point::max());
      co_await room.async_wait(kAwait);
    }
    auto [error, socket] = co_await acceptor.async_accept(kAwait);
    if (error) {
      room.expires_after(kAcceptPause);
      co_await room.async_wait(kAwait);
      continue;
    }
    ++open;
    asio::co_spawn(context, converse(beast::tcp_stream(std::move(socket))),
                   [this](const std::exception_ptr&) {
                     --open;
                     room.cancel();
                   });
  }
}

asio::awaitable<void> HttpServer::Parts::converse(beast::tcp_stream stream) {
  // Pipelined requests and what precedes a body fit beside the longest header.
  beast::flat_buffer buffer(listen.limits.header_bytes + kReadBytes);
  while (co_await exchange(stream, buffer)) {
  }
  // A socket that closes with unread bytes resets the connection, and the client may lose the last
  // answer.
  boost::system::error_code error;
  stream.socket().shutdown(tcp::socket::shutdown_send, error);
  stream.expires_after(kLinger);
  while (!error) {
    buffer.clear();
    std::tie(error, std::ignore) =
        co_await stream.async_read_some(buffer.prepare(kReadBytes), kAwait);
  }
}

// Whether the connection stays open for another request.
asio::awaitable<bool> HttpServer::Parts::exchange(beast::tcp_stream& stream,
                                                  beast::flat_buffer& buffer) {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(listen.limits.header_bytes));
  parser.body_limit(listen.limits.body_bytes);
  stream.expires_after(listen.limits.request);
  const auto [error, bytes] = co_await http::async_read(stream, buffer, parser, kAwait);
  if (error) {
    std::optional<HttpAnswer> answer = answer_to_misfit(error);
    if (answer) co_await write(stream, response_of(std::move(*answer), false, false));
    co_return false;
  }
  const bool keep_alive = parser.get().keep_alive();
  const HttpRequest request = request_of(parser);
  HttpAnswer answer =
      co_await asio::co_spawn(handlers.get_executor(), handle(request), asio::use_awaitable);
  co_return co_await write(stream,
                           response_of(std::move(answer), keep_alive, request.method == "HEAD"));
}

// Runs on a thread of the handlers.
asio::awaitable<HttpAnswer> HttpServer::Parts::handle(const HttpRequest& request) {
  if (stopped) co_return HttpAnswer{.status = 503, .body = "the server stops\n"};
  co_return dispatch(routes, request);
}

asio::awaitable<bool> HttpServer::Parts::write(beast::tcp_stream& stream, Response response) {
  stream.expires_after(listen.limits.answer);
  const auto [error, bytes] = co_await http::async_write(stream, response, kAwait);
  co_return !error && response.keep_alive();
}

HttpServer::HttpServer(HttpListen listen, HttpRoutes routes)
    : parts_(std::make_unique<Parts>(std::move(listen), std::move(routes))) {}

HttpServer::~HttpServer() = default;

std::string HttpServer::address() const {
  const tcp::endpoint endpoint = parts_->acceptor.local_endpoint();
  const std::string number = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + number + "]" : number) + ":" +
         std::to_string(endpoint.port());
}

int HttpServer::connections() const { return parts_->open; }

}  // namespace strata
