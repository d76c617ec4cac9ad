/// Offers models over HTTP by KServe's protocol, version 2 (Open Inference Protocol):
/// docs/serving.md describes each route.
///
///     HttpServer server(kserve_listen(openai_listen({.port = 8000}, keys), keys),
///                       routes of openai_routes() and kserve_routes());
///
/// Threads  the routes answer asynchronously and occupy no handler thread while a model computes.
#pragma once

#include <memory>
#include <string>

#include "strata/http/http_server.h"
#include "strata/kserve/model/model_repository.h"

namespace strata {

struct KServeSetup {
  std::shared_ptr<const ModelRepository> models;
  std::shared_ptr<const Keys> keys = {};  ///< null: requests need no key
  std::string version = {};               ///< of the server
};

/// Routes that need no key: /v2/health/live and /v2/health/ready.
HttpRoutes kserve_routes(const KServeSetup& setup);

/// Makes a server write its own refusals of paths below /v2 as KServe's error objects, and check
/// keys there before it reads a body. Other paths stay as `listen` treats them.
HttpListen kserve_listen(HttpListen listen, std::shared_ptr<const Keys> keys);

}  // namespace strata
