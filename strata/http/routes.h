/// Maps methods and paths of HTTP requests to handlers.
///
/// Threads  dispatch() runs handlers on the caller's thread; several threads may call it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace strata {

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< of the target, without the query: "/metrics"
  std::string query;   ///< without its '?'
  std::string body;
};

inline constexpr const char* kPlainText = "text/plain; charset=utf-8";

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string type = kPlainText;  ///< Content-Type
  std::string allow = {};         ///< Allow, of status 405
};

struct HttpRoute {
  std::string method;
  std::string path;  ///< the whole path, compared byte by byte
  std::function<HttpAnswer(const HttpRequest&)> handler;
};

using HttpRoutes = std::vector<HttpRoute>;

/// The answer of the route with the request's method and path: 404 if no route has the path, 405 if
/// none of its routes has the method. A UserError of the handler is status 400, another exception
/// status 500; the body is its message.
HttpAnswer dispatch(const HttpRoutes& routes, const HttpRequest& request);

}  // namespace strata
