/// States what requests, answers and routes of HTTP are, and finds the route of a request.
///
/// Threads  The functions: any. The server calls handlers on its handler threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace strata {

/// Whether texts are equal if ASCII letters match in any case.
bool equal_in_any_case(std::string_view a, std::string_view b);

using HttpFields = std::vector<std::pair<std::string, std::string>>;  ///< names and values

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< as sent, without the query: "/metrics"
  std::string query;   ///< as sent, without its '?'
  std::string body;    ///< any bytes; a chunked body is joined
  HttpFields headers = {};
  HttpFields parameters = {};    ///< of the route's path, decoded: {"id", "org/model"}
  HttpFields query_values = {};  ///< decoded

  /// The first value of the name, "" without one. Names of headers match in any case.
  std::string_view header(std::string_view name) const;
  std::string_view parameter(std::string_view name) const;
  std::string_view query_value(std::string_view name) const;
};

/// Sends the body of one answer in pieces. If the last reference goes before finish(), the
/// connection closes, and the client sees an incomplete answer.
///
/// Threads  any
class HttpStream {
 public:
  virtual ~HttpStream() = default;

  /// Queues a piece. False: the client has gone, or it reads so slowly that `stream_bytes` of
  /// HttpLimits are queued; nothing more will be sent, and the connection closes.
  virtual bool write(std::string bytes) = 0;

  /// Ends the body after the queued pieces; later calls do nothing.
  virtual void finish() = 0;

  /// Calls `closed` once when the client has left or the body has been sent. The call comes from
  /// the server's thread, never from within on_closed(), and must return soon; after the server's
  /// end it comes at once. A client that only ends its sending (SHUT_WR) counts as gone here,
  /// because a server cannot distinguish it from one that has left; but what is written is still
  /// sent to it.
  virtual void on_closed(std::function<void()> closed) = 0;
};

inline constexpr const char* kPlainText = "text/plain; charset=utf-8";
inline constexpr const char* kEventStream = "text/event-stream";

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string type = kPlainText;  ///< Content-Type; none if empty
  HttpFields headers = {};        ///< further ones: {"Retry-After", "1"}
  /// Instead of `body`: writes the body in pieces (chunked transfer; with HTTP/1.0 until the
  /// connection closes). Runs on a handler thread when the header has been sent, never for HEAD.
  std::function<void(std::shared_ptr<HttpStream>)> stream = {};
};

/// Answers one request, now or later. If the last reference goes before answer(), the client gets
/// status 500. The connection counts until either happens, even if the client has left.
///
/// Threads  any
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;
  virtual void answer(HttpAnswer answer) = 0;  ///< only the first has an effect
  /// As HttpStream::on_closed(); an answer with a stream keeps what is registered here.
  virtual void on_closed(std::function<void()> closed) = 0;
};

struct HttpRoute {
  std::string method;
  /// Literal segments, `{name}` for any one segment, and, as the last, `{name...}` for all that
  /// remain: "/v1/models/{id...}". The first route of a table that matches answers.
  std::string path;
  /// Returns the answer, and occupies a handler thread until then.
  std::function<HttpAnswer(const HttpRequest&)> handler = {};
  /// Instead of `handler`, for long computations: returns soon and lets the responder answer later.
  std::function<void(HttpRequest, std::shared_ptr<HttpResponder>)> asynchronous = {};
  std::size_t body_bytes = 0;   ///< limit of the body; 0: HttpLimits::body_bytes
  bool while_draining = false;  ///< also answers after HttpServer::stop_accepting()
};

using HttpRoutes = std::vector<HttpRoute>;

struct HttpMatch {
  const HttpRoute* route = nullptr;
  HttpFields parameters = {};
  /// Without a route: 404; 405 (no route of this path has the method); 204 for OPTIONS; 400 (the
  /// path is malformed).
  HttpAnswer answer = {};
};

/// Finds the route. A GET route also answers HEAD. Segments are compared after decoding (%41). A
/// path with broken escapes, control characters or bytes that are not UTF-8 is malformed. A
/// parameter is never empty, and none of its parts between slashes (%2F) is empty, "." or "..".
HttpMatch match_route(const HttpRoutes& routes, const std::string& method, const std::string& path);

/// Calls the route's handler. A UserError that it throws is status 400, another exception status
/// 500; the body is its message.
void run_route(const HttpRoute& route, HttpRequest request,
               const std::shared_ptr<HttpResponder>& responder);

}  // namespace strata
