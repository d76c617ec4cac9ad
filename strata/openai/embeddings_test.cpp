// The fake service gives a prompt its first and its last token as its embedding.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

const char* const kPath = "/v1/embeddings";

TestJson embeddings(const TestServer& server, const TestJson& request) {
  const auto client = server.call("POST", kPath, request.dump());
  EXPECT_EQ(client->status(), 200) << client->body();
  return client->json();
}

std::vector<float> of_tokens(float first, float last) {
  const double length = std::hypot(first, last);
  return {static_cast<float>(first / length), static_cast<float>(last / length)};
}

TEST(Embeddings, AnswerHasShapeOfOpenAi) {
  const TestServer server;
  TestJson answer = embeddings(server, {{"model", "m"}, {"input", "abc"}, {"user", "x"}});
  EXPECT_EQ(answer["data"][0]["embedding"].get<std::vector<float>>(), of_tokens('a', 'c'));
  answer["data"][0].erase("embedding");
  EXPECT_EQ(
      answer.dump(),
      R"({"object":"list","data":[{"object":"embedding","index":0}],"model":"m",)"
      R"("usage":{"prompt_tokens":3,"total_tokens":3},"system_fingerprint":"step-00000007"})");
  const SequenceRequest request = server.service->requests().at(0);
  EXPECT_TRUE(request.embed);
  EXPECT_EQ(request.max_tokens, 0);
}

TEST(Embeddings, InputsKeepTheirOrder) {
  const TestServer server;
  for (const TestJson& input : {TestJson{"ab", "xyz"}, TestJson{{97, 98}, {120, 121, 122}}}) {
    const TestJson answer = embeddings(server, {{"input", input}});
    ASSERT_EQ(answer["data"].size(), 2u);
    EXPECT_EQ(answer["data"][0]["embedding"].get<std::vector<float>>(), of_tokens('a', 'b'));
    EXPECT_EQ(answer["data"][1]["embedding"].get<std::vector<float>>(), of_tokens('x', 'z'));
    EXPECT_EQ(answer["data"][1]["index"], 1);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 5);
  }
  EXPECT_EQ(embeddings(server, {{"input", {97, 98}}})["data"].size(), 1u);
}

TEST(Embeddings, Base64HoldsLittleEndianFp32) {
  const TestServer server;
  // 3 / 5 and 4 / 5: the bytes 9a 99 19 3f cd cc 4c 3f.
  const TestJson answer = embeddings(server, {{"input", {3, 4}}, {"encoding_format", "base64"}});
  EXPECT_EQ(answer["data"][0]["embedding"], "mpkZP83MTD8=");
}

TEST(Embeddings, StateOfZerosStaysZero) {
  const TestServer server;
  EXPECT_EQ(embeddings(server, {{"input", {0, 0}}})["data"][0]["embedding"].dump(), "[0.0,0.0]");
}

TEST(Embeddings, RefusesWhatItCannotAnswer) {
  const TestServer server({.context = 8});
  const auto refused = [&](const TestJson& request) {
    return server.refusal(kPath, request)["param"].get<std::string>();
  };
  EXPECT_EQ(refused({{"model", "m"}}), "input");
  EXPECT_EQ(refused({{"input", ""}}), "input");
  EXPECT_EQ(refused({{"input", TestJson::array()}}), "input");
  EXPECT_EQ(refused({{"input", {"a", 3}}}), "input");
  EXPECT_EQ(refused({{"input", {256}}}), "input");
  EXPECT_EQ(refused({{"input", "a"}, {"dimensions", 1}}), "dimensions");
  EXPECT_EQ(refused({{"input", "a"}, {"encoding_format", "hex"}}), "encoding_format");
  EXPECT_EQ(server.refusal(kPath, {{"input", "ninebytes"}})["code"], "context_length_exceeded");
  EXPECT_EQ(embeddings(server, {{"input", "8 bytes."}})["usage"]["total_tokens"], 8);
  EXPECT_EQ(server.refusal(kPath, {{"input", "a"}, {"model", "x"}}, 404)["code"],
            "model_not_found");
}

TEST(Embeddings, FullServerRefusesAllTextsOfTheRequest) {
  const TestServer server({.most_requests = 1, .token_time = std::chrono::milliseconds(50)});
  EXPECT_EQ(server.refusal(kPath, {{"input", {"a", "b"}}}, 429)["code"], "server_busy");
  server.service->wait_until_idle();
  EXPECT_EQ(embeddings(server, {{"input", "a"}})["data"].size(), 1u);
}

TEST(Embeddings, ClientThatLeavesEndsItsRequest) {
  const TestServer server({.token_time = std::chrono::milliseconds(200)});
  const auto client = server.start("POST", kPath, R"({"input": ["a", "b"]})");
  client->leave();
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 2);
}

TEST(Embeddings, KeyPaysForTheTokensOfTheTexts) {
  const TestServer server(
      {}, std::make_shared<const Keys>(std::vector<KeyOptions>{
              {.name = "a", .key = "sk-1", .tokens_per_minute = 1000, .models = {}}}));
  const auto client =
      server.call("POST", kPath, R"({"input": ["abc", "de"]})", {{"authorization", "Bearer sk-1"}});
  EXPECT_EQ(client->status(), 200);
  EXPECT_EQ(client->header("x-ratelimit-remaining-tokens"), "995");
}

}  // namespace
}  // namespace strata
