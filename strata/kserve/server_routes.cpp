#include "strata/kserve/server_routes.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "strata/base/prometheus_text.h"
#include "strata/kserve/model/text_model.h"
#include "strata/kserve/rest/routes.h"
#include "strata/openai/api_call.h"
#include "strata/openai/routes.h"

namespace strata {

std::shared_ptr<const ModelRepository> repository_of(const OpenAiModel& model) {
  return std::make_shared<const ModelRepository>(
      std::vector<ModelRepository::Model>{std::make_shared<TextModel>(model)});
}

HttpRoutes server_routes(const OpenAiModel& model,
                         const std::shared_ptr<const ModelRepository>& models,
                         const std::shared_ptr<const Keys>& keys, const std::string& version) {
  HttpRoutes routes =
      openai_routes({.models = {model}, .keys = keys, .version = version, .further_metrics = [=] {
                       return models->metrics_text();
                     }});
  std::ranges::move(kserve_routes({.models = models, .keys = keys, .version = version}),
                    std::back_inserter(routes));
  return routes;
}

// The server's listen checks keys, of all paths but health's.
HttpRoutes inference_routes(const std::shared_ptr<const ModelRepository>& models,
                            const std::shared_ptr<const Keys>& keys, const std::string& version) {
  HttpRoutes routes = kserve_routes({.models = models, .keys = keys, .version = version});
  const auto add = [&](const char* path, std::function<HttpAnswer()> answer) {
    routes.push_back(
        {.method = "GET",
         .path = path,
         .handler = [answer = std::move(answer)](const HttpRequest&) { return answer(); }});
  };
  const auto health = [models]() -> HttpAnswer {
    const bool ready = models->ready();
    return {.status = ready ? 200 : 503,
            .body = ready ? R"({"status":"ok"})" : R"({"error":"a model is not ready"})",
            .type = kJsonType};
  };
  for (const char* path : {"/health", "/ping"}) add(path, health);
  add("/version", [version]() -> HttpAnswer {
    return {.body = nlohmann::json{{"version", version}}.dump(), .type = kJsonType};
  });
  add("/metrics", [models]() -> HttpAnswer {
    return {.body = models->metrics_text(), .type = kPrometheusText};
  });
  routes.back().while_draining = true;
  return routes;
}

}  // namespace strata
