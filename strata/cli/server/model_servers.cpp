#include "strata/cli/server/model_servers.h"

#include <chrono>
#include <utility>
#include <vector>

#include "strata/cli/version.h"
#include "strata/kserve/model/text_model.h"
#include "strata/kserve/rest/routes.h"
#include "strata/openai/routes.h"

namespace strata {
namespace {

HttpRoutes routes_of(const OpenAiModel& model, const std::shared_ptr<const ModelRepository>& models,
                     const std::shared_ptr<const Keys>& keys) {
  HttpRoutes routes =
      openai_routes({.models = {model}, .keys = keys, .version = kVersion, .further_metrics = [=] {
                       return models->metrics_text();
                     }});
  for (HttpRoute& route : kserve_routes({.models = models, .keys = keys, .version = kVersion}))
    routes.push_back(std::move(route));
  return routes;
}

}  // namespace

ModelServers::ModelServers(const HttpListen& http, const std::optional<InferenceListen>& grpc,
                           const OpenAiModel& model, const std::shared_ptr<const Keys>& keys)
    : tls_(http.tls.has_value()),
      models_(std::make_shared<const ModelRepository>(
          std::vector<ModelRepository::Model>{std::make_shared<TextModel>(model)})),
      http_(kserve_listen(openai_listen(http, keys), keys), routes_of(model, models_, keys)) {
  if (grpc) grpc_.emplace(*grpc, models_, keys, kVersion);
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
