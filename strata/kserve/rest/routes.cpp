#include "strata/kserve/rest/routes.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "strata/base/json_text.h"
#include "strata/http/http_message.h"
#include "strata/kserve/model/refusals.h"
#include "strata/kserve/rest/generate_body.h"
#include "strata/kserve/rest/http_sinks.h"
#include "strata/kserve/rest/infer_body.h"
#include "strata/kserve/rest/metadata_json.h"
#include "strata/openai/api_call.h"
#include "strata/openai/api_error.h"
#include "strata/openai/request_fields.h"

namespace strata {
namespace {

constexpr std::size_t kMaxBodyBytes = std::size_t{16} << 20;
constexpr const char *kLive = "/v2/health/live", *kReady = "/v2/health/ready";

using Answer = std::function<void(const KServeSetup&, const ApiCall&)>;

bool is_kserve(const std::string& path) { return path == "/v2" || path.starts_with("/v2/"); }

bool needs_key(const std::string& path) { return path != kLive && path != kReady; }

const ModelRepository::Model& model_of(const KServeSetup& setup, const ApiCall& call) {
  return setup.models->find(std::string(call.request().parameter("model")),
                            std::string(call.request().parameter("version")), call.key);
}

HttpAnswer json_answer(std::string json) {
  return {.status = 200, .body = std::move(json), .type = kJsonType};
}

void answer_empty(const ApiCall& call) { call.answer(HttpAnswer{.status = 200, .type = ""}); }

[[noreturn]] void refuse_not_ready(const std::string& what) {
  throw ApiError({.status = 503,
                  .message = what + " is not ready",
                  .type = "server_error",
                  .code = "not_ready",
                  .retry_after = std::chrono::seconds(1)});
}

void answer_ready(const KServeSetup& setup, const ApiCall& call) {
  if (!setup.models->ready()) refuse_not_ready("a model");
  answer_empty(call);
}

void answer_model_ready(const KServeSetup& setup, const ApiCall& call) {
  const auto& model = model_of(setup, call);
  if (!model->ready()) refuse_not_ready("the model '" + model->description().name + "'");
  answer_empty(call);
}

void answer_index(const KServeSetup& setup, const ApiCall& call) {
  const std::string& body = call.request().body;
  const bool only_ready = !body.empty() && RequestFields(body).flag("ready", false);
  call.answer(index_json(setup.models->index(call.key, only_ready)));
}

// A client that leaves ends its request.
void start(const KServeSetup& setup, const ApiCall& call, InferenceRequest request,
           std::shared_ptr<InferenceSink> sink) {
  call.responder()->on_closed(setup.models->infer(std::move(request), std::move(sink)));
}

InferenceRequest addressed(InferenceRequest request, const ApiCall& call) {
  request.model = std::string(call.request().parameter("model"));
  request.version = std::string(call.request().parameter("version"));
  request.key = call.key;
  return request;
}

void refuse_packed_body(const ApiCall& call) {
  const std::string_view encoding = call.request().header("Content-Encoding");
  if (!encoding.empty() && !equal_in_any_case(encoding, "identity"))
    refuse_unsupported("Content-Encoding", "send the body as it is");
}

void infer(const KServeSetup& setup, const ApiCall& call) {
  model_of(setup, call);
  refuse_packed_body(call);
  InferBody body = read_infer_body(call.request().body, call.request().header(kJsonLengthHeader));
  InferenceRequest request = addressed(std::move(body.request), call);
  const auto write = [head = head_of(request),
                      form = std::move(body.form)](const InferenceAnswer& answer) {
    return infer_answer(head, form, answer);
  };
  start(setup, call, std::move(request), std::make_shared<HttpAnswerSink>(call, write));
}

InferenceRequest generate_request(const KServeSetup& setup, const ApiCall& call) {
  const ModelDescription& model = model_of(setup, call)->description();
  refuse_packed_body(call);
  return addressed(read_generate_body(call.request().body, model), call);
}

void generate(const KServeSetup& setup, const ApiCall& call) {
  InferenceRequest request = generate_request(setup, call);
  const auto write = [head = head_of(request)](const InferenceAnswer& answer) {
    return json_answer(generate_answer(head, answer));
  };
  start(setup, call, std::move(request), std::make_shared<HttpAnswerSink>(call, write));
}

void generate_stream(const KServeSetup& setup, const ApiCall& call) {
  InferenceRequest request = generate_request(setup, call);
  request.may_stream = true;
  if (!request.parameters.contains("stream")) request.parameters["stream"] = true;
  const auto sink =
      std::make_shared<EventSink>([head = head_of(request)](const InferenceAnswer& answer) {
        return generate_answer(head, answer);
      });
  start(setup, call, std::move(request), sink);
  call.answer_events(
      [sink](std::shared_ptr<HttpStream> stream) { sink->begin(std::move(stream)); });
}

Answer refusal(const char* what) {
  return [=](const KServeSetup&, const ApiCall&) {
    throw ApiError(
        {.status = 501, .message = what, .type = "server_error", .code = "not_implemented"});
  };
}

HttpRoute route(const KServeSetup& setup, std::string method, std::string path, Answer answer) {
  const bool checks_key = setup.keys != nullptr && needs_key(path);
  HttpRoute route{.method = std::move(method), .path = std::move(path)};
  route.body_bytes = kMaxBodyBytes;
  route.while_draining = route.path == kLive;
  route.asynchronous = [=](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    ApiCall call(std::move(request), std::move(responder));
    try {
      if (checks_key) call.key = setup.keys->find(call.request().header("authorization"));
      answer(setup, call);
    } catch (const std::exception& error) {
      call.answer(kserve_refusal(ApiError::of(error)));
    }
  };
  return route;
}

// The routes of one model: below /v2/models/{model}, and below its version.
void add_model_routes(const KServeSetup& setup, HttpRoutes& routes) {
  for (const std::string model : {"/v2/models/{model}", "/v2/models/{model}/versions/{version}"}) {
    const auto add = [&](const char* method, const char* path, Answer answer) {
      routes.push_back(route(setup, method, model + path, std::move(answer)));
    };
    add("GET", "", [](const KServeSetup& all, const ApiCall& call) {
      call.answer(model_json(model_of(all, call)->description()));
    });
    add("GET", "/ready", answer_model_ready);
    add("GET", "/config", [](const KServeSetup& all, const ApiCall& call) {
      call.answer(config_json(model_of(all, call)->description()));
    });
    add("GET", "/stats", [](const KServeSetup& all, const ApiCall& call) {
      call.answer(statistics_json({model_of(all, call)}));
    });
    add("POST", "/infer", infer);
    add("POST", "/generate", generate);
    add("POST", "/generate_stream", generate_stream);
    for (const char* method : {"GET", "POST"}) add(method, "/trace/setting", refusal(kNoTraces));
  }
}

void add_refusals(const KServeSetup& setup, HttpRoutes& routes) {
  const Answer fixed = refusal(kNoLoading);
  for (const char* action : {"load", "unload"})
    routes.push_back(
        route(setup, "POST", "/v2/repository/models/{model}/" + std::string(action), fixed));
  for (const char* method : {"GET", "POST"}) {
    const auto add = [&](const char* path, const char* what) {
      routes.push_back(route(setup, method, path, refusal(what)));
    };
    add("/v2/systemsharedmemory/{rest...}", kNoSharedMemory);
    add("/v2/cudasharedmemory/{rest...}", kNoSharedMemory);
    add("/v2/trace/setting", kNoTraces);
    add("/v2/logging", kNoLog);
  }
}

}  // namespace

HttpRoutes kserve_routes(const KServeSetup& setup) {
  HttpRoutes routes = {route(setup, "GET", "/v2",
                             [](const KServeSetup& all, const ApiCall& call) {
                               call.answer(server_json(all.version));
                             }),
                       route(setup, "GET", kLive,
                             [](const KServeSetup&, const ApiCall& call) { answer_empty(call); }),
                       route(setup, "GET", kReady, answer_ready),
                       route(setup, "GET", "/v2/models/stats",
                             [](const KServeSetup& all, const ApiCall& call) {
                               call.answer(statistics_json(all.models->visible(call.key)));
                             }),
                       route(setup, "POST", "/v2/repository/index", answer_index)};
  add_model_routes(setup, routes);
  add_refusals(setup, routes);
  return routes;
}

HttpListen kserve_listen(HttpListen listen, std::shared_ptr<const Keys> keys) {
  listen.refusal = [others = listen.refusal](HttpAnswer& answer, const HttpRequest& request) {
    if (!is_kserve(request.path)) {
      if (others) others(answer, request);
      return;
    }
    if (answer.type == kJsonType || !has_body(answer.status)) return;  // of `admit`; of OPTIONS
    while (answer.body.ends_with('\n')) answer.body.pop_back();
    answer.body = kserve_refusal(ApiError({.message = answer.body})).body;
    answer.type = kJsonType;
  };
  listen.admit = [others = listen.admit,
                  keys](const HttpRequest& request) -> std::optional<HttpAnswer> {
    if (!is_kserve(request.path)) return others ? others(request) : std::nullopt;
    try {
      if (keys != nullptr && needs_key(request.path)) keys->find(request.header("authorization"));
      return std::nullopt;
    } catch (const ApiError& error) {
      HttpAnswer answer = kserve_refusal(error);
      answer.headers.emplace_back("x-request-id", request_id(request));
      return answer;
    }
  };
  return listen;
}

}  // namespace strata
