#include "strata/cli/recommender/row_routes.h"

#include "strata/base/prometheus_text.h"

namespace strata {

HttpRoutes row_routes(EmbedServer& server) {
  return {{"GET", "/metrics",
           [&server](const HttpRequest&) {
             return HttpAnswer{.body = server.inspection().metrics(), .type = kPrometheusText};
           }},
          {"GET", "/health", [&server](const HttpRequest&) {
             return server.serving() ? HttpAnswer{.body = "SERVING\n"}
                                     : HttpAnswer{.status = 503, .body = "NOT_SERVING\n"};
           }}};
}

}  // namespace strata
