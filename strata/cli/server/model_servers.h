/// Answers the clients of models over HTTP, and KServe's over gRPC.
///
/// Threads  any.
/// Errors   UserError: an address where a server cannot listen; TLS files that cannot be used.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "strata/http/http_server.h"
#include "strata/kserve/rpc/inference_server.h"
#include "strata/openai/keys.h"

namespace strata {

class ModelServers {
 public:
  /// `grpc`: none if no server listens for gRPC. `routes`: of HTTP, for the same models. `keys`:
  /// null if requests need none.
  ModelServers(const HttpListen& http, const std::optional<InferenceListen>& grpc,
               HttpRoutes routes, const std::shared_ptr<const ModelRepository>& models,
               const std::shared_ptr<const Keys>& keys);

  std::string addresses() const;  ///< "http://127.0.0.1:8000 and by gRPC at 127.0.0.1:8001"

  /// Refuses new requests, and lets running ones end, for a bounded time.
  void drain(double seconds);

 private:
  const bool tls_;
  HttpServer http_;
  std::optional<InferenceServer> grpc_;
};

}  // namespace strata
