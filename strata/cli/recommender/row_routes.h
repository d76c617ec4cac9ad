/// Maps the HTTP paths of a server of rows, which a person or Prometheus reads, to their handlers.
///
/// Threads  the handlers: any.
#pragma once

#include "strata/http/routes.h"
#include "strata/rowserver/wire/embed_server.h"

namespace strata {

/// GET /metrics: counts, in the text format of Prometheus. GET /health: status 200 "SERVING", or
/// 503 "NOT_SERVING" for a replica that has no rows yet. `server` outlives the handlers.
HttpRoutes row_routes(EmbedServer& server);

}  // namespace strata
