#include "strata/openai/routes.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/base/prometheus_text.h"
#include "strata/http/http_message.h"
#include "strata/openai/answer_route.h"
#include "strata/openai/api_call.h"
#include "strata/openai/api_error.h"
#include "strata/openai/embedding_route.h"
#include "strata/openai/served_models.h"
#include "strata/openai/tokenizer_routes.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBodyBytes = std::size_t{16} << 20;
const char* const kHtmlText = "text/html; charset=utf-8";

bool needs_key(std::string_view path) {
  return path != "/" && path != "/health" && path != "/ping";
}

// What all routes share.
struct OpenAiServer {
  explicit OpenAiServer(OpenAiSetup setup)
      : models(setup.models),
        keys(std::move(setup.keys)),
        version(std::move(setup.version)),
        further_metrics(std::move(setup.further_metrics)) {}

  const ServedModels models;
  const std::shared_ptr<const Keys> keys;
  const std::string version;
  const std::function<std::string()> further_metrics;
};

using Answer = std::function<void(const OpenAiServer&, const ApiCall&)>;

Json model_json(const OpenAiModel& model) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "strata"},
          {"max_model_len", model.service->context()},
          {"has_chat_template", model.chat.has_value()}};
}

void answer_models(const OpenAiServer& server, const ApiCall& call) {
  Json list = Json::array();
  for (const ServedModelEntry& entry : server.models.visible(call))
    list.push_back(model_json(*entry.model));
  call.answer(Json{{"object", "list"}, {"data", std::move(list)}});
}

void answer_model(const OpenAiServer& server, const ApiCall& call) {
  const std::string name(call.request().parameter("id"));
  call.answer(model_json(*server.models.named(name, call).model));
}

void answer_health(const OpenAiServer& server, const ApiCall& call) {
  if (!server.models.ready())
    throw ApiError({.status = 503,
                    .message = "a model is not ready",
                    .type = "server_error",
                    .code = "not_ready"});
  call.answer(Json{{"status", "ok"}});
}

HttpRoute route(const std::shared_ptr<const OpenAiServer>& server, std::string method,
                std::string path, Answer answer) {
  const bool checks_key = server->keys != nullptr && needs_key(path);
  HttpRoute route{.method = std::move(method), .path = std::move(path)};
  route.body_bytes = kMaxBodyBytes;
  route.while_draining = route.path == "/metrics";
  route.asynchronous = [=](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    ApiCall call(std::move(request), std::move(responder));
    try {
      if (checks_key) call.key = server->keys->find(call.request().header("authorization"));
      answer(*server, call);
    } catch (const std::exception& error) {
      call.refuse(ApiError::of(error));
    }
  };
  return route;
}

/// A route that answers at once with JSON, and counts as a request of the key.
Answer counted(Json (*write)(const ServedModels&, const ApiCall&)) {
  return [=](const OpenAiServer& server, const ApiCall& call) {
    const auto use = call.key == nullptr ? nullptr : call.key->use(0);
    call.answer(write(server.models, call));
  };
}

Answer generation(AnswerKind kind) {
  return [=](const OpenAiServer& server, const ApiCall& call) {
    answer_generation(kind, server.models, call);
  };
}

}  // namespace

HttpRoutes openai_routes(OpenAiSetup setup) {
  const auto server = std::make_shared<const OpenAiServer>(std::move(setup));
  const Answer page = [](const OpenAiServer&, const ApiCall& call) {
    call.answer(std::string(kChatPage), kHtmlText);
  };
  const Answer metrics = [](const OpenAiServer& all, const ApiCall& call) {
    call.answer(all.models.metrics_text() + (all.further_metrics ? all.further_metrics() : ""),
                kPrometheusText);
  };
  const Answer embeddings = [](const OpenAiServer& all, const ApiCall& call) {
    answer_embeddings(all.models, call);
  };
  const Answer version = [](const OpenAiServer& all, const ApiCall& call) {
    call.answer(Json{{"version", all.version}});
  };
  return {route(server, "GET", "/", page),
          route(server, "GET", "/health", answer_health),
          route(server, "GET", "/ping", answer_health),
          route(server, "GET", "/version", version),
          route(server, "GET", "/metrics", metrics),
          route(server, "GET", "/v1/models", answer_models),
          route(server, "GET", "/v1/models/{id...}", answer_model),
          route(server, "POST", "/v1/completions", generation(AnswerKind::kCompletion)),
          route(server, "POST", "/v1/chat/completions", generation(AnswerKind::kChat)),
          route(server, "POST", "/v1/embeddings", embeddings),
          route(server, "POST", "/tokenize", counted(tokenize)),
          route(server, "POST", "/detokenize", counted(detokenize)),
          route(server, "GET", "/tokenizer_info", counted(tokenizer_info))};
}

HttpListen openai_listen(HttpListen listen, std::shared_ptr<const Keys> keys) {
  listen.refusal = [](HttpAnswer& answer, const HttpRequest&) {
    if (answer.type == kJsonType) return;  // of `admit`
    answer.headers.emplace_back("x-request-id", "req-" + random_id());
    if (!has_body(answer.status)) return;  // of OPTIONS
    while (answer.body.ends_with('\n')) answer.body.pop_back();
    answer.body = json_text(
        ApiError({.status = answer.status,
                  .message = answer.body,
                  .type = answer.status >= 500 ? "server_error" : "invalid_request_error"})
            .json());
    answer.type = kJsonType;
  };
  if (keys != nullptr)
    listen.admit = [keys](const HttpRequest& request) -> std::optional<HttpAnswer> {
      try {
        if (needs_key(request.path)) keys->find(request.header("authorization"));
        return std::nullopt;
      } catch (const ApiError& error) {
        HttpAnswer answer = answer_of(error);
        answer.headers.emplace_back("x-request-id", request_id(request));
        return answer;
      }
    };
  return listen;
}

}  // namespace strata
