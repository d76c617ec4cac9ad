#include "strata/http/routes.h"

#include "strata/base/errors.h"

namespace strata {
namespace {

HttpAnswer run(const HttpRoute& route, const HttpRequest& request) {
  try {
    return route.handler(request);
  } catch (const std::exception& error) {
    const Error known = to_error(error);
    return {.status = known.kind() == ErrorKind::kUser ? 400 : 500,
            .body = std::string(known.what()) + '\n'};
  }
}

}  // namespace

HttpAnswer dispatch(const HttpRoutes& routes, const HttpRequest& request) {
  std::string methods;
  for (const HttpRoute& route : routes) {
    if (route.path != request.path) continue;
    if (route.method == request.method) return run(route, request);
    methods += (methods.empty() ? "" : ", ") + route.method;
  }
  if (methods.empty()) return {.status = 404, .body = "there is no such path\n"};
  return {.status = 405, .body = "the path answers " + methods + '\n', .allow = methods};
}

}  // namespace strata
