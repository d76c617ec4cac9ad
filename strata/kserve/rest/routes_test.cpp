#include "strata/kserve/rest/routes.h"

#include <gtest/gtest.h>

#include "strata/http/http_client_test.h"
#include "strata/kserve/kserve_server_test.h"

namespace strata {
namespace {

std::shared_ptr<const Keys> two_keys() {
  return std::make_shared<const Keys>(std::vector<KeyOptions>{
      {.name = "alice", .key = "sk-a"}, {.name = "bob", .key = "sk-b", .models = {"other"}}});
}

const HttpFields kAlice = {{"Authorization", "Bearer sk-a"}},
                 kBob = {{"Authorization", "Bearer sk-b"}};

TEST(KServeRoutes, DescribeTheServer) {
  const TestJson server = KServeServer().json("GET", "/v2");
  EXPECT_EQ(server["name"], "strata");
  EXPECT_EQ(server["version"], "1.2");
  EXPECT_EQ(server["extensions"][0], "binary_tensor_data");
}

TEST(KServeRoutes, DescribeTheModel) {
  const KServeServer server;
  const TestJson model = server.json("GET", "/v2/models/m");
  EXPECT_EQ(model["versions"], TestJson({"1"}));
  EXPECT_EQ(model["inputs"][0],
            (TestJson{{"name", "text_input"}, {"datatype", "BYTES"}, {"shape", {1}}}));
  EXPECT_EQ(model["outputs"][1],
            (TestJson{{"name", "output_ids"}, {"datatype", "INT64"}, {"shape", {-1}}}));
  EXPECT_EQ(server.json("GET", "/v2/models/m/versions/1"), model);
  const TestJson config = server.json("GET", "/v2/models/m/config");
  EXPECT_EQ(config["input"][0], (TestJson{{"name", "text_input"},
                                          {"data_type", "TYPE_STRING"},
                                          {"dims", {1}},
                                          {"optional", true}}));
  EXPECT_TRUE(config["model_transaction_policy"]["decoupled"]);
}

TEST(KServeRoutes, StateWhetherModelsAreReady) {
  const KServeServer server;
  const std::vector<std::string> paths = {"/v2/health/ready", "/v2/models/m/ready",
                                          "/v2/models/m/versions/1/ready"};
  for (const std::string& path : paths) EXPECT_EQ(server.call("GET", path)->status(), 200);
  EXPECT_EQ(server.json("POST", "/v2/repository/index")[0]["state"], "READY");
  server.service->ready = false;
  for (const std::string& path : paths) EXPECT_EQ(server.call("GET", path)->status(), 503);
  EXPECT_EQ(server.call("GET", "/v2/health/live")->status(), 200);
  EXPECT_EQ(server.json("POST", "/v2/repository/index")[0]["state"], "UNAVAILABLE");
  EXPECT_EQ(server.json("POST", "/v2/repository/index", R"({"ready": true})"), TestJson::array());
  EXPECT_EQ(server.refusal("/v2/models/m/infer", text_request("a").dump(), 503),
            "the model 'm' is not ready");
}

TEST(KServeRoutes, CountRequestsOfAllFrontEnds) {
  const KServeServer server;
  server.completion({{"prompt", "abc"}, {"max_tokens", 2}});
  server.json("POST", "/v2/models/m/infer", text_request("abc").dump());
  const TestJson stats = server.json("GET", "/v2/models/m/stats");
  EXPECT_EQ(stats, server.json("GET", "/v2/models/stats"));
  const TestJson& model = stats["model_stats"][0];
  EXPECT_EQ(model["name"], "m");
  EXPECT_EQ(model["inference_count"], 2);
  EXPECT_EQ(model["inference_stats"]["success"]["count"], 2);
  EXPECT_GT(model["inference_stats"]["success"]["ns"], 0);
  EXPECT_EQ(model["inference_stats"]["fail"]["count"], 0);
  EXPECT_GE(model["execution_count"], 6);
  EXPECT_GT(model["last_inference"], 1'700'000'000'000);
  const std::string metrics = server.call("GET", "/metrics")->body();
  EXPECT_NE(metrics.find("\nnv_inference_request_success{model=\"m\",version=\"1\"} 2\n"),
            std::string::npos);
  EXPECT_NE(metrics.find("# TYPE nv_inference_pending_request_count gauge\n"), std::string::npos);
}

TEST(KServeRoutes, CountFailuresByTheirReason) {
  const auto line = [](const KServeServer& server, const std::string& reason) {
    return server.call("GET", "/metrics")
               ->body()
               .find("nv_inference_request_failure{model=\"m\",version=\"1\",reason=\"" + reason +
                     "\"} 1\n") != std::string::npos;
  };
  const KServeServer broken({.fails_at = 1}), full({.most_requests = 0});
  broken.refusal("/v2/models/m/infer", text_request("abc").dump(), 500);
  full.refusal("/v2/models/m/infer", text_request("abc").dump(), 429);
  EXPECT_TRUE(line(broken, "BACKEND"));
  EXPECT_TRUE(line(full, "REJECTED"));
  EXPECT_EQ(
      full.json("GET", "/v2/models/m/stats")["model_stats"][0]["inference_stats"]["fail"]["count"],
      1);
}

TEST(KServeRoutes, RefuseUnknownModelsAndVersions) {
  const KServeServer server;
  EXPECT_EQ(server.refusal("/v2/models/other/infer", "{}", 404), "there is no model 'other'");
  EXPECT_EQ(server.refusal("/v2/models/m/versions/2/infer", "{}", 404),
            "the model 'm' has no version '2', only '1'");
  for (const char* path : {"/v2/models/other", "/v2/models/m/versions/2/ready",
                           "/v2/models/other/stats", "/v2/models/other/config"})
    EXPECT_EQ(server.call("GET", path)->status(), 404) << path;
}

TEST(KServeRoutes, RefuseExtensionsByName) {
  const KServeServer server;
  for (const char* path :
       {"/v2/repository/models/m/load", "/v2/repository/models/m/unload",
        "/v2/systemsharedmemory/region/r/register", "/v2/logging",
        "/v2/cudasharedmemory/unregister", "/v2/trace/setting", "/v2/models/m/trace/setting"})
    EXPECT_NE(server.refusal(path, "{}", 501).find("the server "), std::string::npos) << path;
}

TEST(KServeRoutes, NeedAKeyUnlessTheyStateHealth) {
  const KServeServer server({}, two_keys());
  EXPECT_EQ(server.call("GET", "/v2/health/live")->status(), 200);
  EXPECT_EQ(server.call("GET", "/v2/health/ready")->status(), 200);
  for (const char* path : {"/v2", "/v2/models/m", "/v2/models/m/ready", "/v2/models/stats"}) {
    EXPECT_EQ(server.call("GET", path)->status(), 401) << path;
    EXPECT_EQ(server.call("GET", path, "", kAlice)->status(), 200) << path;
  }
  EXPECT_EQ(server.refusal("/v2/models/m/infer", text_request("a").dump(), 403, kBob),
            "the key may not use the model 'm'");
  EXPECT_EQ(server.call("POST", "/v2/repository/index", "", kBob)->json(), TestJson::array());
  EXPECT_EQ(server.call("GET", "/v2/models/stats", "", kBob)->json()["model_stats"].size(), 0U);
}

TEST(KServeRoutes, CountTokensOfTheKey) {
  const auto keys = std::make_shared<const Keys>(
      std::vector<KeyOptions>{{.name = "alice", .key = "sk-a", .tokens_per_minute = 10}});
  const KServeServer server({}, keys);
  const std::string body = text_request("abc", 4).dump();
  EXPECT_EQ(
      server.call("POST", "/v2/models/m/infer", body, kAlice)->header("x-ratelimit-limit-tokens"),
      "10");
  const auto refused = server.call("POST", "/v2/models/m/infer", body, kAlice);
  EXPECT_EQ(refused->status(), 429);
  EXPECT_NE(refused->header("Retry-After"), "");
}

TEST(KServeRoutes, AnswerOverHttpInTheirOwnShape) {
  const auto keys = two_keys();
  KServeServer server({}, keys);
  HttpServer http(kserve_listen(openai_listen({}, keys), keys), server.routes);
  const auto answer = [&](const std::string& path) {
    const std::string whole = ask(http, "GET " + path + " HTTP/1.1\r\nConnection: close\r\n\r\n");
    return std::pair(status_of(whole), body_of(whole));
  };
  EXPECT_EQ(answer("/v2/health/live"), std::pair(200, std::string()));
  EXPECT_EQ(answer("/v2/models/m"),
            std::pair(401, std::string(R"({"error":"send a key: Authorization: Bearer KEY"})")));
  EXPECT_EQ(TestJson::parse(answer("/v1/models").second)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(body_of(ask(http,
                        "GET /v2/nothing HTTP/1.1\r\nConnection: close\r\n"
                        "Authorization: Bearer sk-a\r\n\r\n")),
            R"({"error":"there is no such path"})");
  http.stop_accepting();
  EXPECT_EQ(answer("/v2/health/live").first, 200);
  EXPECT_EQ(answer("/v2/health/ready"),
            std::pair(503, std::string(R"({"error":"the server is shutting down"})")));
}

}  // namespace
}  // namespace strata
