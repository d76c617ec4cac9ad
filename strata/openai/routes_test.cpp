#include "strata/openai/routes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "strata/http/http_client_test.h"
#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

TEST(OpenAiRoutes, ModelsAreListedAndNamed) {
  TestServer server;
  server.routes = openai_routes({.models = {server.model("m"), server.model("org/other")}});
  const auto list = server.call("GET", "/v1/models")->json();
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0].dump(),
            R"({"id":"m","object":"model","created":5,"owned_by":"strata","max_model_len":128,)"
            R"("has_chat_template":true})");
  EXPECT_EQ(server.call("GET", "/v1/models/org/other")->json()["id"], "org/other");
  const auto missing = server.call("GET", "/v1/models/none");
  EXPECT_EQ(missing->status(), 404);
  EXPECT_EQ(missing->json()["error"]["code"], "model_not_found");
}

TEST(OpenAiRoutes, FieldModelChoosesTheModel) {
  TestServer server;
  OpenAiModel other = server.model("other");
  other.service = std::make_shared<FakeService>(FakeService::Options{.script = {'z'}});
  server.routes = openai_routes({.models = {server.model("m"), other}});
  TestJson request = {{"model", "other"}, {"prompt", "ab"}, {"max_tokens", 2}, {"temperature", 0}};
  EXPECT_EQ(server.text(request), "zz");
  request["model"] = "m";
  EXPECT_EQ(server.text(request), "ab");
  request["model"] = "none";
  EXPECT_EQ(server.refusal("/v1/completions", request, 404)["code"], "model_not_found");
  request.erase("model");
  EXPECT_EQ(server.refusal("/v1/completions", request)["param"], "model");
}

TEST(OpenAiRoutes, OnlyModelNeedsNoName) {
  const TestServer server;
  TestJson request = {{"prompt", "ab"}, {"max_tokens", 2}, {"temperature", 0}};
  EXPECT_EQ(server.text(request), "ab");
  request["model"] = "";
  EXPECT_EQ(server.text(request), "ab");
  request["model"] = "gpt-4";
  EXPECT_EQ(server.refusal("/v1/completions", request, 404)["param"], "model");
}

TEST(OpenAiRoutes, TokenizerRoutesHaveShapesOfVllm) {
  const TestServer server;
  const auto post = [&](const char* path, const TestJson& body) {
    return server.call("POST", path, body.dump())->json().dump();
  };
  EXPECT_EQ(
      post("/tokenize", {{"model", "m"}, {"prompt", "h\xC3\xA9"}, {"add_special_tokens", false}}),
      R"({"count":3,"max_model_len":128,"tokens":[104,195,169],"token_strs":null})");
  EXPECT_EQ(post("/tokenize", {{"messages", {{{"role", "u"}, {"content", ""}}}}}),
            R"({"count":14,"max_model_len":128,"tokens":[60,117,62,60,97,115,115,105,115,116,97,)"
            R"(110,116,62],"token_strs":null})");
  EXPECT_EQ(post("/detokenize", {{"tokens", {104, 195, 169, 195}}}),
            "{\"prompt\":\"h\xC3\xA9\xEF\xBF\xBD\"}");
  const auto info = server.call("GET", "/tokenizer_info")->json();
  EXPECT_EQ(info["eos_token"], "\n");
  EXPECT_EQ(info["bos_token"], nullptr);
  EXPECT_EQ(info["chat_template"], kTestTemplate);
  EXPECT_EQ(server.refusal("/tokenize", {{"prompt", 3}})["param"], "prompt");
  EXPECT_EQ(server.refusal("/detokenize", {{"tokens", {256}}})["param"], "tokens");
}

TEST(OpenAiRoutes, HealthFollowsTheServices) {
  const TestServer server;
  EXPECT_EQ(server.call("GET", "/health")->json().dump(), R"({"status":"ok"})");
  server.service->ready = false;
  EXPECT_EQ(server.call("GET", "/health")->status(), 503);
  EXPECT_EQ(server.call("GET", "/ping")->status(), 503);
  EXPECT_EQ(server.refusal("/v1/completions", {{"prompt", "a"}}, 503)["code"], "not_ready");
  EXPECT_EQ(server.call("GET", "/version")->json().dump(), R"({"version":"1.2"})");
}

TEST(OpenAiRoutes, RequestIdIsTheClientsOrARandomOne) {
  const TestServer server;
  const auto id = [&](const HttpFields& headers) {
    return server.call("GET", "/health", "", headers)->header("x-request-id");
  };
  EXPECT_EQ(id({{"X-Request-Id", "my-id_1.2"}}), "my-id_1.2");
  EXPECT_EQ(id({{"X-Request-Id", "bad\r\nid"}}).substr(0, 4), "req-");
  EXPECT_NE(id({}), id({}));
}

TEST(OpenAiRoutes, PageIsHtmlOfItsOwn) {
  const TestServer server;
  const auto page = server.call("GET", "/");
  EXPECT_TRUE(page->type().starts_with("text/html"));
  EXPECT_TRUE(page->body().starts_with("<!doctype html>"));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_EQ(page->body().find(outside), std::string::npos) << outside;
}

TEST(OpenAiRoutes, ServerRefusesWithErrorObjects) {
  const auto listen = openai_listen({}, nullptr);
  HttpAnswer answer{.status = 404, .body = "there is no such path\n"};
  listen.refusal(answer, {});
  EXPECT_EQ(answer.type, "application/json");
  ASSERT_EQ(answer.headers.size(), 1U);
  EXPECT_EQ(answer.headers[0].first, "x-request-id");
  EXPECT_EQ(answer.headers[0].second.size(), 4 + 24U);
  EXPECT_EQ(answer.body,
            R"({"error":{"message":"there is no such path","type":"invalid_request_error",)"
            R"("param":null,"code":null}})");
  HttpAnswer busy{.status = 503, .body = "the server is busy\n"};
  listen.refusal(busy, {});
  EXPECT_EQ(TestJson::parse(busy.body)["error"]["type"], "server_error");
}

TEST(OpenAiRoutes, OptionsHaveNoBodyAndTheConnectionContinues) {
  const TestServer routes;
  const HttpServer server(openai_listen({}, nullptr), routes.routes);
  const std::string both = ask(server, "OPTIONS /v1/completions HTTP/1.1\r\n\r\n" + get("/health"));
  const std::string options = both.substr(0, both.find("\r\n\r\n") + 4);
  EXPECT_EQ(status_of(options), 204);
  EXPECT_NE(options.find("Allow: POST, OPTIONS\r\n"), std::string::npos);
  EXPECT_NE(options.find("x-request-id: req-"), std::string::npos);
  EXPECT_EQ(options.find("Content-"), std::string::npos) << options;
  const std::string health = both.substr(options.size());
  EXPECT_EQ(status_of(health), 200) << both;
  EXPECT_EQ(body_of(health), R"({"status":"ok"})");
}

TEST(OpenAiRoutes, StreamsStateTheirCachingOnce) {
  const TestServer routes;
  const HttpServer server(openai_listen({}, nullptr), routes.routes);
  const std::string body = R"({"prompt":"ab","stream":true})";
  const std::string answer =
      ask(server, "POST /v1/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: " +
                      std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(status_of(answer), 200);
  const auto first = answer.find("Cache-Control: no-store\r\n");
  EXPECT_NE(first, std::string::npos) << answer;
  EXPECT_EQ(answer.find("Cache-Control", first + 1), std::string::npos) << answer;
}

TEST(OpenAiRoutes, UnknownKeyIsRefusedBeforeTheBodyIsRead) {
  const auto keys =
      std::make_shared<const Keys>(std::vector<KeyOptions>{{.name = "a", .key = "sk-1"}});
  const auto listen = openai_listen({}, keys);
  HttpRequest request{.method = "POST", .path = "/v1/completions"};
  ASSERT_TRUE(listen.admit(request).has_value());
  EXPECT_EQ(listen.admit(request)->status, 401);
  request.headers = {{"X-Request-Id", "mine"}};
  HttpAnswer refused = *listen.admit(request);
  listen.refusal(refused, {});
  EXPECT_EQ(std::ranges::count(refused.headers, HttpFields::value_type{"x-request-id", "mine"}), 1);
  request.headers = {{"Authorization", "Bearer sk-1"}};
  EXPECT_FALSE(listen.admit(request).has_value());
  for (const char* open : {"/", "/health", "/ping"})
    EXPECT_FALSE(listen.admit({.method = "GET", .path = open}).has_value());
}

}  // namespace
}  // namespace strata
