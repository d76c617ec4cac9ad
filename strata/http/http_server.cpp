// One coroutine accepts. Each connection has two: one receives, all the time, so that it notices at
// once when the client leaves; the other reads requests from what has been received, waits for
// their answers and writes them. All of them run on one thread, so they share state without locks.
//
// g++ 12 destroys some temporary objects of an expression with co_await twice: those of `{}` and of
// `?:`. Such objects have names here.
#include "strata/http/http_server.h"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "strata/base/errors.h"
#include "strata/http/http_exchange.h"
#include "strata/http/http_message.h"
#include "strata/http/http_server_socket.h"
#include "strata/http/http_target.h"
#include "strata/transport/host_address.h"

namespace strata {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr std::chrono::seconds kResolving{2};
constexpr std::chrono::milliseconds kAcceptPause{100};  // after a failure: no descriptor is free
constexpr std::chrono::seconds kLinger{1};              // for the client to read the last answer
constexpr std::size_t kReadBytes = std::size_t{16} << 10;
constexpr int kRefusedConnections = 32;
constexpr int kNoAnswer = 0;  // the status of an answer that is not sent

using Parser = http::request_parser<http::string_body>;

[[noreturn]] void refuse(const HttpListen& listen, const std::string& got) {
  throw UserError({.operation = "http.listen",
                   .where = listen.host + ":" + std::to_string(listen.port),
                   .what = "the server cannot listen there",
                   .expected = "an address of this machine with a free port",
                   .got = got,
                   .fix = "choose another port, or end the process that uses this one"});
}

// Without this a program that the process starts would keep the socket open.
void close_on_exec(int socket) { ::fcntl(socket, F_SETFD, FD_CLOEXEC); }

tcp::endpoint endpoint_of(const HttpListen& listen) {
  const HostAddress address = resolve(listen.host, listen.port, Clock::now() + kResolving).front();
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
    close_on_exec(acceptor.native_handle());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
  } catch (const boost::system::system_error& error) {
    refuse(listen, error.code().message());
  }
  return acceptor;
}

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string number = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + number + "]" : number) + ":" +
         std::to_string(endpoint.port());
}

void check_tls(const error_code& error, const std::string& file, const char* expected) {
  if (!error) return;
  throw UserError({.operation = "http.tls",
                   .where = file,
                   .what = "the server cannot use this file for TLS",
                   .expected = expected,
                   .got = error.message(),
                   .fix = "name the files of one certificate and its key"});
}

std::unique_ptr<asio::ssl::context> tls_of(const HttpListen& listen) {
  if (!listen.tls) return nullptr;
  const HttpTls& files = *listen.tls;
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(tls->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(tls->native_handle(), SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(tls->native_handle(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(tls->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  // Without this function OpenSSL would ask for the password on the terminal.
  tls->set_password_callback([](std::size_t, auto) { return std::string(); });
  error_code error;
  tls->use_certificate_chain_file(files.certificate_file, error);
  check_tls(error, files.certificate_file, "a chain of certificates in PEM");
  tls->use_private_key_file(files.key_file, asio::ssl::context::pem, error);
  check_tls(error, files.key_file, "the certificate's key in PEM, without a password");
  return tls;
}

HttpAnswer refusal(int status, const std::string& why) {
  HttpAnswer answer{.status = status, .body = why + '\n'};
  if (status == 503) answer.headers.emplace_back("Retry-After", "1");
  return answer;
}

// The answer to a request that could not be read.
HttpAnswer answer_to_misfit(const error_code& error, bool has_begun) {
  if (error == http::error::header_limit) return refusal(431, "the header is too long");
  if (error == http::error::body_limit) return refusal(413, "the body is too long");
  if (error == asio::error::timed_out && has_begun)
    return refusal(408, "the request did not arrive in time");
  if (error == asio::error::no_buffer_space) return refusal(503, "the server is busy");
  static const boost::system::error_category& kHttp =
      http::make_error_code(http::error::bad_target).category();
  if (error.category() != kHttp) return {.status = kNoAnswer};
  return refusal(400, "the request is malformed: " + error.message());
}

struct Connection {
  Connection(tcp::socket accepted, asio::ssl::context* tls)
      : changed(accepted.get_executor()),
        room(accepted.get_executor()),
        socket(prepared(std::move(accepted)), tls) {}

  static tcp::socket prepared(tcp::socket socket) {
    close_on_exec(socket.native_handle());
    // With these options the kernel finds clients whose machine has gone.
    error_code error;
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(tcp::socket::keep_alive(true), error);
    using asio::detail::socket_option::integer;
    socket.set_option(integer<IPPROTO_TCP, TCP_KEEPIDLE>(30), error);  // seconds
    socket.set_option(integer<IPPROTO_TCP, TCP_KEEPINTVL>(10), error);
    socket.set_option(integer<IPPROTO_TCP, TCP_KEEPCNT>(3), error);
    return socket;
  }

  void close() {
    socket.close();
    discards = true;
    room.cancel();
  }

  asio::steady_timer changed;  // cancelled when anything below or the exchange has changed
  asio::steady_timer room;     // cancelled when `input` has become shorter
  HttpSocket socket;
  std::string input;      // received, not yet parsed
  bool ended = false;     // the client sends no more
  bool failed = false;    // and reads no more
  bool discards = false;  // what is received now is not kept
  std::shared_ptr<HttpExchange> exchange;
};

using ConnectionPointer = std::shared_ptr<Connection>;

// False: the deadline has passed.
asio::awaitable<bool> wait(ConnectionPointer connection, Clock::time_point deadline) {
  connection->changed.expires_at(deadline);
  co_await connection->changed.async_wait(kAwait);
  co_return Clock::now() < deadline;
}

// Runs functions on the server's thread, as long as there is one.
class Mailbox {
 public:
  explicit Mailbox(asio::io_context& context) : context_(&context) {}
  bool post(std::function<void()> run) {
    const std::lock_guard lock(mutex_);
    if (context_) asio::post(*context_, std::move(run));
    return context_ != nullptr;
  }
  void close() {
    const std::lock_guard lock(mutex_);
    context_ = nullptr;
  }

 private:
  std::mutex mutex_;
  asio::io_context* context_;
};

// A request that is being read.
struct Incoming {
  explicit Incoming(std::size_t& all_bodies) : all_bodies(all_bodies) {}
  ~Incoming() { all_bodies -= counted; }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // False: the bodies of all requests have become too long.
  bool count_body(std::size_t limit) {
    const std::size_t now = parser.get().body().size();
    all_bodies += now - counted;
    counted = now;
    return all_bodies <= limit;
  }
  HttpFraming framing() const {
    return {.is_http11 = parser.get().version() == 11,
            .keep_alive = parser.is_done() && parser.keep_alive(),
            .is_head = parser.get().method() == http::verb::head};
  }

  Parser parser;
  HttpRequest request;
  const HttpRoute* route = nullptr;
  std::size_t& all_bodies;
  std::size_t counted = 0;
};

}  // namespace

struct HttpServer::Parts {
  Parts(HttpListen what, HttpRoutes table)
      : listen(std::move(what)),
        limits(listen.limits),
        routes(std::move(table)),
        tls(tls_of(listen)),
        handlers(static_cast<std::size_t>(limits.handler_threads)),
        acceptor(listen_at(context, listen)),
        room(context),
        mailbox(std::make_shared<Mailbox>(context)),
        thread([this] {
          asio::co_spawn(context, accept(), asio::detached);
          context.run();
        }) {}

  ~Parts() {
    stopped = true;
    context.stop();
    thread.join();
    mailbox->close();
    exchanges.end_all();  // a handler may wait for that
    handlers.join();
  }

  asio::awaitable<void> accept();
  asio::awaitable<void> converse(ConnectionPointer connection, bool is_refused);
  asio::awaitable<void> receive(ConnectionPointer connection);
  asio::awaitable<bool> exchange(ConnectionPointer connection);
  asio::awaitable<std::optional<HttpAnswer>> read(ConnectionPointer connection, Incoming& incoming);
  asio::awaitable<error_code> parse(ConnectionPointer connection, Incoming& incoming, bool whole,
                                    Clock::time_point deadline);
  std::optional<HttpAnswer> admit(Incoming& incoming);
  asio::awaitable<bool> serve(ConnectionPointer connection, Incoming& incoming,
                              std::shared_ptr<HttpExchange> exchange);
  asio::awaitable<bool> send(ConnectionPointer connection, const HttpAnswer& answer,
                             HttpFraming framing);
  asio::awaitable<bool> send_pieces(ConnectionPointer connection, bool chunked);
  asio::awaitable<bool> refuse(ConnectionPointer connection, HttpAnswer answer, HttpFraming framing,
                               const HttpRequest& request);
  HttpExchange::Thread thread_of(const ConnectionPointer& connection) const;

  const HttpListen listen;
  const HttpLimits& limits;
  const HttpRoutes routes;
  const std::unique_ptr<asio::ssl::context> tls;
  std::atomic<bool> stopped = false;
  std::atomic<int> open = 0;
  int refused = 0;                 // connections
  std::size_t all_body_bytes = 0;  // of all requests
  HttpExchanges exchanges;
  // After the coroutines, which hold work of it: the context, whose destructor ends them, is
  // destroyed first.
  asio::thread_pool handlers;
  asio::io_context context{1};
  tcp::acceptor acceptor;
  asio::steady_timer room;  // cancelled when a connection closes
  const std::shared_ptr<Mailbox> mailbox;
  std::thread thread;
};

asio::awaitable<void> HttpServer::Parts::accept() {
  for (;;) {
    while (open >= limits.connections && refused >= kRefusedConnections) {
      room.expires_at(Clock::time_point::max());
      co_await room.async_wait(kAwait);
    }
    auto [error, socket] = co_await acceptor.async_accept(kAwait);
    if (error) {
      room.expires_after(kAcceptPause);
      co_await room.async_wait(kAwait);
      continue;
    }
    const bool is_refused = open >= limits.connections;
    is_refused ? ++refused : ++open;
    auto connection = std::make_shared<Connection>(std::move(socket), tls.get());
    asio::co_spawn(context, converse(connection, is_refused),
                   [this, connection, is_refused](const std::exception_ptr&) {
                     connection->close();
                     is_refused ? --refused : --open;
                     room.cancel();
                   });
  }
}

asio::awaitable<void> HttpServer::Parts::converse(ConnectionPointer connection, bool is_refused) {
  if (!co_await connection->socket.shake_hands(limits.request)) co_return;
  asio::co_spawn(context, receive(connection), asio::detached);
  if (is_refused) {
    HttpAnswer busy = refusal(503, "the server has too many connections");
    const HttpRequest unread;
    co_await refuse(connection, std::move(busy), HttpFraming(), unread);
  } else {
    while (co_await exchange(connection)) {
    }
  }
  // A socket that closes with unread bytes resets the connection, and the client may lose the last
  // answer.
  connection->discards = true;
  connection->room.cancel();
  const Clock::time_point deadline = Clock::now() + kLinger;
  co_await connection->socket.end_sending(kLinger);
  while (!connection->ended && co_await wait(connection, deadline)) {
  }
}

asio::awaitable<void> HttpServer::Parts::receive(ConnectionPointer connection) {
  std::array<char, kReadBytes> arriving;
  while (!connection->ended) {
    if (connection->input.size() > limits.header_bytes && !connection->discards) {
      connection->room.expires_at(Clock::time_point::max());
      co_await connection->room.async_wait(kAwait);
      continue;
    }
    const auto [error, bytes] = co_await connection->socket.read_some(asio::buffer(arriving));
    if (!connection->discards) connection->input.append(arriving.data(), bytes);
    connection->ended = error.failed();
    connection->failed = error && error != asio::error::eof;
    connection->changed.cancel();
    if (const auto exchange = connection->exchange; error && exchange) exchange->client_left();
  }
}

// Feeds the parser until it has the header, or the whole request.
asio::awaitable<error_code> HttpServer::Parts::parse(ConnectionPointer connection,
                                                     Incoming& incoming, bool whole,
                                                     Clock::time_point deadline) {
  std::string& input = connection->input;
  const auto is_done = [&] {
    return whole ? incoming.parser.is_done() : incoming.parser.is_header_done();
  };
  while (!is_done()) {
    error_code error = http::error::need_more;
    std::size_t parsed = 0;
    if (!input.empty()) parsed = incoming.parser.put(asio::buffer(input), error);
    input.erase(0, parsed);
    connection->room.cancel();
    if (error && error != http::error::need_more) co_return error;
    if (!incoming.count_body(limits.all_body_bytes)) co_return asio::error::no_buffer_space;
    if (!error || is_done()) continue;
    if (parsed == 0 && input.size() > limits.header_bytes) co_return http::error::header_limit;
    if (connection->ended) co_return asio::error::eof;
    if (!co_await wait(connection, deadline)) co_return asio::error::timed_out;
  }
  co_return error_code();
}

// Whether the request may be read whole; else the answer.
std::optional<HttpAnswer> HttpServer::Parts::admit(Incoming& incoming) {
  const auto& message = incoming.parser.get();
  HttpRequest& request = incoming.request;
  request.method = std::string(message.method_string());
  split_target(std::string_view(message.target().data(), message.target().size()), request);
  for (const auto& field : message)
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  if (auto refused = refuse_headers(request, message.version() == 11)) return refused;
  std::optional<HttpFields> values = query_fields(request.query);
  if (!values) return refusal(400, "the query is malformed");
  request.query_values = std::move(*values);
  if (listen.admit)
    if (auto refused = listen.admit(request)) return refused;
  HttpMatch match = match_route(routes, request.method, request.path);
  if (!match.route) return match.answer;
  request.parameters = std::move(match.parameters);
  incoming.route = match.route;
  if (exchanges.draining() && !match.route->while_draining)
    return refusal(503, "the server is shutting down");
  const std::size_t limit = match.route->body_bytes ? match.route->body_bytes : limits.body_bytes;
  if (incoming.parser.content_length().value_or(0) > limit)
    return refusal(413, "the body is too long");
  incoming.parser.body_limit(limit);
  return std::nullopt;
}

// The answer that refuses the request; none if it has been read.
asio::awaitable<std::optional<HttpAnswer>> HttpServer::Parts::read(ConnectionPointer connection,
                                                                   Incoming& incoming) {
  Parser& parser = incoming.parser;
  parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
  parser.body_limit(boost::none);  // set when the route is known
  const Clock::time_point deadline = Clock::now() + limits.request;
  error_code error = co_await parse(connection, incoming, false, deadline);
  if (!error) {
    if (auto refused = admit(incoming)) co_return refused;
    if (!parser.is_done() && connection->input.empty() &&
        !incoming.request.header("Expect").empty() && parser.get().version() == 11)
      co_await connection->socket.write("HTTP/1.1 100 Continue\r\n\r\n", "", limits.answer);
    error = co_await parse(connection, incoming, true, deadline);
  }
  if (error) co_return answer_to_misfit(error, parser.got_some() || !connection->input.empty());
  incoming.request.body = std::move(parser.get().body());
  co_return std::nullopt;
}

// Whether the connection stays open for another request.
asio::awaitable<bool> HttpServer::Parts::exchange(ConnectionPointer connection) {
  Incoming incoming(all_body_bytes);
  if (std::optional<HttpAnswer> refused = co_await read(connection, incoming)) {
    if (refused->status == kNoAnswer) co_return false;
    HttpFraming framing = incoming.framing();
    // The next request's begin is doubtful after a malformed one.
    framing.keep_alive = framing.keep_alive && refused->status != 400 && refused->status < 500;
    co_return co_await refuse(connection, std::move(*refused), framing, incoming.request);
  }
  const auto exchange = std::make_shared<HttpExchange>(limits.stream_bytes, thread_of(connection));
  if (!exchanges.enter(exchange, incoming.route->while_draining)) {
    HttpAnswer draining = refusal(503, "the server is shutting down");
    co_return co_await refuse(connection, std::move(draining), HttpFraming(), incoming.request);
  }
  connection->exchange = exchange;
  if (connection->ended) exchange->client_left();
  // Also runs if the server ends, and with it this coroutine.
  const auto leave = [this, connection](HttpExchange* ended) {
    ended->end();
    exchanges.leave(ended->shared_from_this());
    connection->exchange.reset();
  };
  const std::unique_ptr<HttpExchange, decltype(leave)> left(exchange.get(), leave);
  co_return co_await serve(connection, incoming, exchange);
}

// Runs the handler, and sends the answer when there is one.
asio::awaitable<bool> HttpServer::Parts::serve(ConnectionPointer connection, Incoming& incoming,
                                               std::shared_ptr<HttpExchange> exchange) {
  HttpFraming framing = incoming.framing();
  asio::post(handlers, [this, route = incoming.route, responder = exchange->responder(),
                        request = std::move(incoming.request)]() mutable {
    if (stopped) return;  // the answer would not be sent
    run_route(*route, std::move(request), responder);
  });
  std::optional<HttpAnswer> answer;
  while (!(answer = exchange->take_answer())) co_await wait(connection, Clock::time_point::max());
  framing.keep_alive =
      framing.keep_alive && !exchanges.draining() && (framing.is_http11 || !answer->stream);
  if (!co_await send(connection, *answer, framing)) co_return false;
  if (!answer->stream || framing.is_head) co_return framing.keep_alive;
  asio::post(handlers, [start = std::move(answer->stream), stream = exchange->stream()]() mutable {
    try {
      start(std::move(stream));
    } catch (const std::exception&) {  // the stream has gone, and the client sees that
    }
  });
  co_return co_await send_pieces(connection, framing.is_http11) && framing.keep_alive &&
      !exchanges.draining();
}

// The header, and the body unless it is a stream.
asio::awaitable<bool> HttpServer::Parts::send(ConnectionPointer connection,
                                              const HttpAnswer& answer, HttpFraming framing) {
  const std::string header = header_text(answer, framing);
  const bool sends_body = !framing.is_head && !answer.stream && has_body(answer.status);
  const std::string_view body = sends_body ? answer.body : std::string_view();
  co_return co_await connection->socket.write(header, body, limits.answer);
}

// Whether the body has been sent whole.
asio::awaitable<bool> HttpServer::Parts::send_pieces(ConnectionPointer connection, bool chunked) {
  const std::shared_ptr<HttpExchange> exchange = connection->exchange;
  for (;;) {
    const HttpExchange::Pieces pieces = exchange->take_pieces();
    const std::string bytes =
        chunked && !pieces.bytes.empty() ? chunk_text(pieces.bytes) : pieces.bytes;
    const bool is_last = pieces.finished && !pieces.broken && chunked;
    if (!bytes.empty() || is_last) {
      if (!co_await connection->socket.write(bytes, is_last ? kLastChunk : "", limits.answer))
        co_return false;
      exchange->sent(pieces.bytes.size());
    }
    if (pieces.finished) co_return !pieces.broken;
    if (connection->failed) co_return false;
    if (bytes.empty()) co_await wait(connection, Clock::time_point::max());
  }
}

// Sends an answer of the server's own; whether the connection stays open.
asio::awaitable<bool> HttpServer::Parts::refuse(ConnectionPointer connection, HttpAnswer answer,
                                                HttpFraming framing, const HttpRequest& request) {
  if (listen.refusal) listen.refusal(answer, request);
  co_return co_await send(connection, answer, framing) && framing.keep_alive;
}

HttpExchange::Thread HttpServer::Parts::thread_of(const ConnectionPointer& connection) const {
  const auto wake = [weak = std::weak_ptr(connection)] {
    const ConnectionPointer woken = weak.lock();
    if (!woken) return;
    woken->changed.cancel();
    if (woken->exchange && woken->exchange->is_overrun()) woken->socket.close();
  };
  return {.wake = [mailbox = mailbox, wake] { mailbox->post(wake); },
          .post = [mailbox = mailbox](auto run) { return mailbox->post(std::move(run)); }};
}

HttpServer::HttpServer(HttpListen listen, HttpRoutes routes)
    : parts_(std::make_unique<Parts>(std::move(listen), std::move(routes))) {}

HttpServer::~HttpServer() = default;

std::string HttpServer::address() const { return text_of(parts_->acceptor.local_endpoint()); }

int HttpServer::connections() const { return parts_->open; }

int HttpServer::requests() const { return parts_->exchanges.counted(); }

void HttpServer::stop_accepting() { parts_->exchanges.drain(); }

bool HttpServer::wait_idle(std::chrono::steady_clock::time_point deadline) {
  return parts_->exchanges.wait_idle(deadline);
}

}  // namespace strata
