#include "strata/kserve/server_routes.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "strata/kserve/model/text_model.h"
#include "strata/kserve/rest/routes.h"
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

}  // namespace strata
