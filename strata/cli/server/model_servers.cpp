#include "strata/cli/server/model_servers.h"

#include <chrono>
#include <utility>

#include "strata/cli/version.h"
#include "strata/kserve/rest/routes.h"
#include "strata/openai/routes.h"

namespace strata {

ModelServers::ModelServers(const HttpListen& http, const std::optional<InferenceListen>& grpc,
                           HttpRoutes routes, const std::shared_ptr<const ModelRepository>& models,
                           const std::shared_ptr<const Keys>& keys)
    : tls_(http.tls.has_value()),
      http_(kserve_listen(openai_listen(http, keys), keys), std::move(routes)) {
  if (grpc) grpc_.emplace(*grpc, models, keys, kVersion);
}

std::string ModelServers::addresses() const {
  const std::string text = (tls_ ? "https://" : "http://") + http_.address();
  return grpc_ ? text + " and by gRPC at " + grpc_->address() : text;
}

void ModelServers::drain(double seconds) {
  const std::chrono::milliseconds limit(static_cast<std::int64_t>(seconds * 1e3));
  const auto deadline = std::chrono::steady_clock::now() + limit;
  http_.stop_accepting();
  if (grpc_) grpc_->drain(std::chrono::system_clock::now() + limit);
  http_.wait_idle(deadline);
}

}  // namespace strata
