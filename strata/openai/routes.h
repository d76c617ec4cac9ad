/// Offers models over OpenAI's HTTP API, with the tokenizer routes and metrics of vLLM's server and
/// a chat page: docs/serving.md describes each route.
///
///     HttpServer server(openai_listen({.port = 8000}, keys),
///                       openai_routes({.models = {model}, .keys = keys, .version = "0.1"}));
///
/// Threads  the routes answer asynchronously and occupy no handler thread while a model computes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "strata/http/http_server.h"
#include "strata/http/routes.h"
#include "strata/openai/keys.h"
#include "strata/openai/model.h"

namespace strata {

struct OpenAiSetup {
  std::vector<OpenAiModel> models;                    ///< at least one; the names differ
  std::shared_ptr<const Keys> keys = {};              ///< null: requests need no key
  std::string version = {};                           ///< of the server
  std::function<std::string()> further_metrics = {};  ///< text of Prometheus that /metrics appends
};

/// Routes that need no key: /, /health, /ping. All others need one if the server has keys.
HttpRoutes openai_routes(OpenAiSetup setup);

/// Makes a server refuse unknown keys before it reads a body, and write its own refusals as error
/// objects. `keys`: null if requests need none.
HttpListen openai_listen(HttpListen listen, std::shared_ptr<const Keys> keys);

extern const std::string_view
    kChatPage;  ///< the page of assets/chat_*.html with its style sheet and script

}  // namespace strata
