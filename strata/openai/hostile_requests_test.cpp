// Every body gets an answer or an error object, whatever it holds.
#include <gtest/gtest.h>

#include <random>

#include "strata/openai/fake_client_test.h"
#include "strata/openai/request_fields.h"

namespace strata {
namespace {

const char* const kPostPaths[] = {"/v1/completions", "/v1/chat/completions", "/tokenize",
                                  "/detokenize", "/v1/embeddings"};

// The status; checks that a refusal is an error object.
int status_of(const TestServer& server, const std::string& path, const std::string& body) {
  const auto client = server.call("POST", path, body);
  if (client->status() == 200) return 200;
  const auto json = TestJson::parse(client->body(), nullptr, false);
  const bool shaped = json.is_object() && json.contains("error") &&
                      json["error"]["message"].is_string() && json["error"]["type"].is_string() &&
                      json["error"].contains("param") && json["error"].contains("code");
  EXPECT_TRUE(shaped) << path << '\n' << body << '\n' << client->body();
  return client->status();
}

TEST(HostileRequests, BodiesThatAreNoObjectGetErrorObjects) {
  const TestServer server;
  const std::string deep =
      "{\"prompt\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  const std::string bodies[] = {"",
                                " ",
                                "null",
                                "[]",
                                "3",
                                "\"text\"",
                                "{",
                                "{\"prompt\": NaN}",
                                "{\"prompt\": Infinity}",
                                "{\"temperature\": 1e999, \"prompt\": \"a\"}",
                                "{\"prompt\": \"\xFF\xFE\"}",
                                "{\"prompt\": \"\\ud800\"}",
                                deep,
                                std::string(1 << 20, '{'),
                                std::string("{\"a\0\": 1}", 10)};
  for (const char* path : kPostPaths)
    for (const std::string& body : bodies) EXPECT_EQ(status_of(server, path, body), 400) << path;
}

TEST(HostileRequests, EveryFieldRefusesValuesOfOtherTypes) {
  const TestServer server;
  const TestJson values[] = {nullptr,
                             true,
                             -1,
                             1e18,
                             18446744073709551615u,
                             -9.5,
                             "",
                             "text",
                             TestJson::array(),
                             {1, "a"},
                             {{{"a", 1}}},
                             TestJson::object(),
                             {{"type", "x"}},
                             std::string(5000, 'x')};
  for (const char* field : {"model",
                            "prompt",
                            "messages",
                            "input",
                            "encoding_format",
                            "dimensions",
                            "max_tokens",
                            "max_completion_tokens",
                            "min_tokens",
                            "temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "n",
                            "best_of",
                            "stop",
                            "stop_token_ids",
                            "seed",
                            "stream",
                            "stream_options",
                            "echo",
                            "logprobs",
                            "top_logprobs",
                            "logit_bias",
                            "ignore_eos",
                            "presence_penalty",
                            "frequency_penalty",
                            "repetition_penalty",
                            "tokens",
                            "add_special_tokens",
                            "add_generation_prompt",
                            "chat_template_kwargs",
                            "response_format",
                            "structured_outputs",
                            "guided_json",
                            "guided_regex",
                            "guided_choice",
                            "guided_grammar",
                            "tools",
                            "chat_template",
                            "suffix",
                            "skip_special_tokens"})
    for (const TestJson& value : values)
      for (const char* path : kPostPaths) {
        TestJson body = {{"prompt", "ab"},
                         {"messages", {{{"role", "user"}, {"content", "hi"}}}},
                         {"tokens", {1, 2}},
                         {"input", "ab"},
                         {"max_tokens", 2}};
        body[field] = value;
        const int status = status_of(server, path, body.dump());
        EXPECT_TRUE(status == 200 || status == 400 || status == 404 || status == 429)
            << status << path << body.dump();
      }
}

TEST(HostileRequests, ManySequencesAreRefused) {
  const TestServer server;
  TestJson body = {{"prompt", std::vector<std::string>(1000, "a")}, {"n", 100}};
  EXPECT_EQ(server.refusal("/v1/completions", body)["param"], "prompt");
  body = {{"prompt", "a"}, {"stop", std::vector<std::string>(100, "a")}};
  EXPECT_EQ(server.refusal("/v1/completions", body)["param"], "stop");
}

// Members "k0": 0, "k1": 0, ...
std::string members(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += (i > 0 ? "," : "") + ("\"k" + std::to_string(i)) + "\":0";
  return all;
}

TEST(HostileRequests, SchemasAreReadFromBodiesWithManyOtherMembers) {
  const std::string many = members(200'000);
  const RequestFields fields(
      R"({"guided_json":{"a":1},"metadata":{)" + many +
      R"(,"guided_json":1},"response_format":{"json_schema":{"schema":{"x":2}},"schema":3},)"
      R"("response_format":{"json_schema":{"x":[{"schema":4}],"schema":{"b":[1,{}],"a":"\u00e9"},)"
      R"("y":{"schema":5}}},)" +
      many + "}");
  EXPECT_EQ(fields.schema("guided_json").dump(), R"({"a":1})");
  EXPECT_EQ(fields.inner("response_format").inner("json_schema").schema("schema").dump(),
            "{\"b\":[1,{}],\"a\":\"\xC3\xA9\"}");
  EXPECT_TRUE(fields.schema("nothing").is_null());
}

TEST(HostileRequests, SchemasWithManyMembersAreRefused) {
  const TestServer server;
  const auto refusal = [&](const std::string& schema) {
    const TestJson error = server.refusal(
        "/v1/completions", TestJson::parse(R"({"prompt":"a","guided_json":)" + schema + "}"));
    EXPECT_EQ(error["param"], "guided_json");
    return error["message"].get<std::string>();
  };
  const std::string wide = "{\"x-a\":{" + members(2'001) + "}}", all = members(2'000);
  const std::string part = "{" + all + "}";
  std::string large = part;
  for (int i = 0; i < 10; ++i) large += "," + part;
  for (const std::string& schema : {wide, "{\"x-a\":[" + large + "]}"}) {
    EXPECT_NE(refusal(schema).find("the schema is too large"), std::string::npos);
    EXPECT_NE(refusal(TestJson(schema).dump()).find("the schema is too large"), std::string::npos);
  }
  EXPECT_NE(refusal(TestJson(std::string(100'000, '[')).dump()).find("nested too deeply"),
            std::string::npos);
  EXPECT_NE(refusal("\"{1e999}\"").find("the text is no JSON"), std::string::npos);
  EXPECT_EQ(status_of(server, "/v1/completions",
                      R"({"prompt":"a","max_tokens":2,"guided_json":{"type":"null","x-a":{)" + all +
                          "}}}"),
            200);
}

TEST(HostileRequests, TemplateArgumentsCannotExhaustTheServer) {
  const TestServer server;
  TestJson body = {{"messages", {{{"role", "user"}, {"content", "{{ 9**9**9 }}{% for %}"}}}},
                   {"chat_template_kwargs", {{"messages", 3}, {"range", nullptr}}},
                   {"max_tokens", 2}};
  EXPECT_EQ(status_of(server, "/v1/chat/completions", body.dump()), 200);
}

TEST(HostileRequests, MutatedBodiesNeverCrashTheServer) {
  const TestServer server({.context = 512});
  const std::string seeds[] = {
      R"({"model":"m","prompt":"ab\u00e9","max_tokens":3,"n":2,"best_of":2,"echo":true,"logprobs":2,)"
      R"("stop":["x","yz"],"seed":7,"temperature":0.5,"logit_bias":{"97":1.5},"stream":false})",
      R"({"prompt":[[1,2,3],[4]],"max_tokens":1,"logprobs":1,"echo":true,"stream":true,)"
      R"("stream_options":{"include_usage":true}})",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",)"
      R"("text":"t"}]}],"max_tokens":2,"logprobs":true,"top_logprobs":3,"top_k":4,"min_p":0.1})",
      R"({"prompt":"text","max_tokens":5,"response_format":{"type":"json_schema","json_schema":{"name":"n",)"
      R"("schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}})",
      R"({"prompt":"text","add_special_tokens":false,"tokens":[104,105]})"};
  std::mt19937 random(20261124);
  const auto below = [&](std::size_t count) { return random() % count; };
  const std::string alphabet("{}[]\":,0123456789.-+eEtrufalsn\\ \xC3\xA9\xFF\0", 37);
  int answered = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string body = seeds[below(std::size(seeds))];
    for (std::size_t edits = below(4) + 1; edits > 0 && !body.empty(); --edits) {
      const std::size_t at = below(body.size());
      const std::size_t length = std::min<std::size_t>(below(8) + 1, body.size() - at);
      switch (below(4)) {
        case 0:
          body[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          body.erase(at, length);
          break;
        case 2:
          body.insert(at, body.substr(below(body.size()), length));
          break;
        default:
          body.insert(at, std::to_string(static_cast<std::int32_t>(random())));
      }
    }
    answered += status_of(server, kPostPaths[below(4)], body) == 200 ? 1 : 0;
  }
  EXPECT_GT(answered, 100);
  EXPECT_LT(answered, 5000);
}

}  // namespace
}  // namespace strata
