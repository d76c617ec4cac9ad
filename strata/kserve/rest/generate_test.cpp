#include <gtest/gtest.h>

#include "strata/kserve/kserve_server_test.h"

namespace strata {
namespace {

constexpr const char *kGenerate = "/v2/models/m/generate",
                     *kGenerateStream = "/v2/models/m/generate_stream";

// The objects of a stream's events.
std::vector<TestJson> events_of(const FakeClient& client) {
  std::vector<TestJson> events;
  std::string rest = client.body();
  for (std::size_t end; (end = rest.find("\n\n")) != std::string::npos; rest.erase(0, end + 2)) {
    EXPECT_TRUE(rest.starts_with("data: ")) << rest;
    events.push_back(TestJson::parse(rest.substr(6, end - 6)));
  }
  EXPECT_EQ(rest, "");
  return events;
}

std::string request(TestJson more = TestJson::object()) {
  TestJson fields = {
      {"text_input", "abc"}, {"parameters", {{"temperature", 0}}}, {"max_tokens", 4}};
  fields.update(more);
  return fields.dump();
}

TEST(Generate, ContinuesAText) {
  const KServeServer server;
  EXPECT_EQ(
      server.json("POST", kGenerate, request({{"id", "x"}})),
      (TestJson{
          {"model_name", "m"}, {"model_version", "1"}, {"id", "x"}, {"text_output", "abcabca"}}));
  EXPECT_EQ(server.json("POST", kGenerate, request({{"exclude_input_in_output", true}}))
                .at("text_output"),
            "abca");
}

TEST(Generate, ReadsAListAsATensor) {
  const KServeServer server;
  EXPECT_EQ(
      server.json("POST", kGenerate, request({{"text_input", nullptr}, {"input_ids", {104, 105}}}))
          .at("text_output"),
      "hihihi");
  EXPECT_EQ(server.refusal(kGenerate, request({{"text_input", {"a", "b"}}})),
            "tensor 'text_input' must have the shape [1], got [2]");
}

TEST(Generate, RefusesAStream) {
  const KServeServer server;
  EXPECT_NE(server.refusal(kGenerate, request({{"stream", true}})).find("generate_stream"),
            std::string::npos);
}

TEST(GenerateStream, SendsAnEventAToken) {
  const KServeServer server;
  const auto client = server.call("POST", kGenerateStream, request());
  EXPECT_EQ(client->status(), 200);
  EXPECT_EQ(client->type(), kEventStream);
  std::vector<std::string> texts;
  for (const TestJson& event : events_of(*client)) {
    EXPECT_EQ(event.at("model_name"), "m");
    texts.push_back(event.at("text_output"));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "b", "c", "a"}));
}

TEST(GenerateStream, EndsWithAnEmptyTextAfterTheEnd) {
  const KServeServer server({.script = {'x', 'y', '\n'}});
  std::vector<std::string> texts;
  const auto client = server.call("POST", kGenerateStream, request());
  for (const TestJson& event : events_of(*client)) texts.push_back(event.at("text_output"));
  EXPECT_EQ(texts, (std::vector<std::string>{"x", "y", ""}));
}

TEST(GenerateStream, SendsOneEventIfTheClientWantsNoStream) {
  const KServeServer server;
  const auto client = server.call("POST", kGenerateStream, request({{"stream", false}}));
  const auto events = events_of(*client);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events.front().at("text_output"), "abcabca");
}

TEST(GenerateStream, RefusesBeforeTheFirstEvent) {
  const KServeServer server;
  EXPECT_NE(server.refusal(kGenerateStream, request({{"max_tokens", 1000}})).find("context"),
            std::string::npos);
  EXPECT_NE(server.refusal(kGenerateStream, request({{"exclude_input_in_output", false}}))
                .find("must be true for a stream"),
            std::string::npos);
}

TEST(GenerateStream, SendsAnErrorAsItsLastEvent) {
  const KServeServer server({.fails_at = 2});
  const auto client = server.call("POST", kGenerateStream, request());
  const auto events = events_of(*client);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events.back(), (TestJson{{"error", "the model failed"}}));
}

TEST(GenerateStream, EndsTheSequenceOfAClientThatLeaves) {
  const KServeServer server({.token_time = std::chrono::milliseconds(5)});
  const auto client = server.start("POST", kGenerateStream, request({{"max_tokens", 100}}), {}, 2);
  client->wait();
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 1);
}

}  // namespace
}  // namespace strata
