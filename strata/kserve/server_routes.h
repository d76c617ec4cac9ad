/// Assembles what a server of one model of text answers, and a server of other models.
///
///     const auto models = repository_of(model);
///     HttpServer http(kserve_listen(openai_listen(listen, keys), keys),
///                     server_routes(model, models, keys, version));
///     InferenceServer rpc({}, models, keys, version);
#pragma once

#include <memory>
#include <string>

#include "strata/http/routes.h"
#include "strata/kserve/model/model_repository.h"
#include "strata/openai/model.h"

namespace strata {

std::shared_ptr<const ModelRepository> repository_of(const OpenAiModel& model);

/// The routes of OpenAI's and of KServe's clients; /metrics has the metrics of both. `keys`: null
/// if requests need none. `version`: of the server.
HttpRoutes server_routes(const OpenAiModel& model,
                         const std::shared_ptr<const ModelRepository>& models,
                         const std::shared_ptr<const Keys>& keys, const std::string& version);

/// The routes of KServe's clients alone, with /health, /ping, /version and /metrics.
HttpRoutes inference_routes(const std::shared_ptr<const ModelRepository>& models,
                            const std::shared_ptr<const Keys>& keys, const std::string& version);

}  // namespace strata
