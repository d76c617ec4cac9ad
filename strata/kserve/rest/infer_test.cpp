#include <gtest/gtest.h>

#include <map>

#include "strata/kserve/kserve_server_test.h"

namespace strata {
namespace {

constexpr const char* kInfer = "/v2/models/m/infer";

std::vector<float> fake_scores(const std::string& prompt, int tokens) {
  std::vector<float> scores;
  for (int i = 0; i < tokens; ++i) {
    const std::size_t size = prompt.size();
    scores.push_back(static_cast<float>(fake_score(prompt[static_cast<std::size_t>(i) % size],
                                                   static_cast<std::int64_t>(size) + i)));
  }
  return scores;
}

// The outputs of a binary answer, cut by the sizes in its JSON.
std::map<std::string, std::string> binary_outputs(const FakeClient& client) {
  const std::size_t length = std::stoul(client.header(kJsonLengthHeader));
  const TestJson json = TestJson::parse(client.body().substr(0, length));
  std::map<std::string, std::string> outputs;
  std::size_t at = length;
  for (const TestJson& output : json["outputs"]) {
    const auto size = output["parameters"]["binary_data_size"].get<std::size_t>();
    outputs[output["name"]] = client.body().substr(at, size);
    at += size;
  }
  EXPECT_EQ(at, client.body().size());
  return outputs;
}

TEST(Infer, ContinuesATextAfterIt) {
  const KServeServer server;
  TestJson request = text_request("abc", 5);
  request["id"] = "seven";
  const TestJson answer = server.json("POST", kInfer, request.dump());
  EXPECT_EQ(answer, (TestJson{{"model_name", "m"},
                              {"model_version", "1"},
                              {"id", "seven"},
                              {"outputs", {json_tensor("text_output", "BYTES", {"abcabcab"})}}}));
  EXPECT_EQ(server.json("POST", "/v2/models/m/versions/1/infer", request.dump()), answer);
}

TEST(Infer, LeavesTheTextOutIfAsked) {
  const KServeServer server;
  TestJson request = text_request("abc", 5);
  request["inputs"].push_back(json_tensor("exclude_input_in_output", "BOOL", {true}));
  EXPECT_EQ(server.json("POST", kInfer, request.dump())["outputs"][0]["data"][0], "abcab");
  request = text_request("abc", 5, {{"exclude_input_in_output", true}});
  EXPECT_EQ(server.json("POST", kInfer, request.dump())["outputs"][0]["data"][0], "abcab");
}

TEST(Infer, ReadsTokensInPlaceOfAText) {
  const KServeServer server;
  TestJson request = text_request("", 4);
  request["inputs"][0] = json_tensor("input_ids", "INT64", {104, 105});
  EXPECT_EQ(server.json("POST", kInfer, request.dump())["outputs"][0]["data"][0], "hihihi");
  EXPECT_EQ(server.service->requests().front().prompt, (std::vector<std::int64_t>{104, 105}));
}

TEST(Infer, SendsTheOutputsThatAreRequested) {
  const KServeServer server;
  TestJson request = text_request("abc", 4);
  for (const char* name : {"finish_reason", "log_probabilities", "output_ids"})
    request["outputs"].push_back({{"name", name}});
  const TestJson outputs = server.json("POST", kInfer, request.dump())["outputs"];
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_EQ(outputs[0], json_tensor("finish_reason", "BYTES", {"length"}));
  EXPECT_EQ(outputs[1], json_tensor("log_probabilities", "FP32", fake_scores("abc", 4)));
  EXPECT_EQ(outputs[2], json_tensor("output_ids", "INT64", {97, 98, 99, 97}));
}

TEST(Infer, SendsTheSameValuesAsJsonAndAsBytes) {
  const KServeServer server;
  TestJson request = text_request("abc", 4);
  for (const char* name : {"text_output", "log_probabilities", "output_ids"})
    request["outputs"].push_back({{"name", name}});
  const TestJson plain = server.json("POST", kInfer, request.dump());
  request["parameters"]["binary_data_output"] = true;
  const auto client = server.call("POST", kInfer, request.dump());
  const auto outputs = binary_outputs(*client);
  EXPECT_EQ(client->type(), "application/octet-stream");
  EXPECT_EQ(outputs.at("text_output"), text_element(plain["outputs"][0]["data"][0]));
  std::string scores, ids;
  for (const TestJson& score : plain["outputs"][1]["data"])
    append_value(scores, score.get<float>());
  for (const TestJson& id : plain["outputs"][2]["data"]) append_value(ids, id.get<std::int64_t>());
  EXPECT_EQ(outputs.at("log_probabilities"), scores);
  EXPECT_EQ(outputs.at("output_ids"), ids);
  EXPECT_EQ(scores.size(), 16U);
}

TEST(Infer, SendsEachOutputInItsOwnForm) {
  const KServeServer server;
  TestJson request = text_request("abc", 1);
  request["outputs"] = {{{"name", "text_output"}, {"parameters", {{"binary_data", true}}}},
                        {{"name", "output_ids"}}};
  const auto client = server.call("POST", kInfer, request.dump());
  const std::size_t length = std::stoul(client->header(kJsonLengthHeader));
  const TestJson json = TestJson::parse(client->body().substr(0, length));
  EXPECT_FALSE(json["outputs"][0].contains("data"));
  EXPECT_EQ(json["outputs"][1]["data"], TestJson({97}));
  EXPECT_EQ(client->body().substr(length), text_element("abca"));
}

TEST(Infer, ReadsBinaryInputs) {
  const KServeServer server;
  TestJson request = text_request("", 2);
  const std::string text = text_element("xyz"), flag(1, '\1');
  request["inputs"][0].erase("data");
  request["inputs"][0]["parameters"]["binary_data_size"] = text.size();
  request["inputs"].push_back({{"name", "exclude_input_in_output"},
                               {"datatype", "BOOL"},
                               {"shape", {1}},
                               {"parameters", {{"binary_data_size", 1}}}});
  const std::string json = request.dump();
  const auto client = server.call("POST", kInfer, json + text + flag,
                                  {{kJsonLengthHeader, std::to_string(json.size())}});
  EXPECT_EQ(client->json()["outputs"][0]["data"], TestJson({"xy"}));
}

TEST(Infer, ReadsFieldsFromParametersAndFromTexts) {
  const KServeServer server;
  TestJson request = text_request("abc", 9);
  request["inputs"].erase(1);
  request["parameters"] = {{"max_tokens", "3"}, {"temperature", "0.5"}, {"seed", 1}};
  EXPECT_EQ(server.json("POST", kInfer, request.dump())["outputs"][0]["data"][0], "abcbca");
  EXPECT_EQ(server.service->requests().front().sampling.temperature, 0.5);
}

TEST(Infer, EndsAtStopStrings) {
  const KServeServer server;
  const TestJson request = text_request("abcdef", 12, {{"stop", {"def"}}, {"ignore_eos", true}});
  EXPECT_EQ(server.json("POST", kInfer, request.dump())["outputs"][0]["data"][0], "abcdefabc");
}

TEST(Infer, RefusesTensorsThatTheModelDoesNotHave) {
  const KServeServer server;
  const auto refused = [&](const char* key, const TestJson& value, std::size_t input = 0) {
    TestJson request = text_request("abc");
    request["inputs"][input][key] = value;
    return server.refusal(kInfer, request.dump());
  };
  EXPECT_NE(refused("name", "text").find("tensor 'text' is no input of the model; it has text_in"),
            std::string::npos);
  EXPECT_EQ(refused("name", "text_input", 1), "tensor 'text_input' occurs twice");
  EXPECT_NE(refused("datatype", "TEXT").find("not one of BOOL, UINT8"), std::string::npos);
  EXPECT_EQ(refused("shape", {1, 1}), "tensor 'text_input' must have the shape [1], got [1,1]");
  EXPECT_EQ(refused("data", {1}), "tensor 'text_input' is BYTES; got 1");
  TestJson request = text_request("abc");
  request["inputs"][0] = json_tensor("input_ids", "INT32", {1});
  EXPECT_EQ(server.refusal(kInfer, request.dump()), "tensor 'input_ids' must be INT64, got INT32");
  request["inputs"].erase(0);
  EXPECT_NE(server.refusal(kInfer, request.dump()).find("one of the inputs"), std::string::npos);
  request = text_request("abc");
  request["outputs"] = {{{"name", "logits"}}};
  EXPECT_NE(server.refusal(kInfer, request.dump()).find("'logits' is no output of the model"),
            std::string::npos);
}

TEST(Infer, RefusesFieldsThatItCannotObey) {
  const KServeServer server;
  const auto refused = [&](const TestJson& fields) {
    return server.refusal(kInfer, text_request("abc", 4, fields).dump());
  };
  EXPECT_EQ(refused({{"n", 2}}), "'n' is not supported: a request has one answer");
  EXPECT_EQ(refused({{"best_of", 2}}), "'best_of' is not supported: a request has one answer");
  EXPECT_EQ(refused({{"prompt", "x"}}),
            "'prompt' is not supported: use the input text_input or input_ids");
  EXPECT_NE(refused({{"logprobs", 2}}).find("request the output log_probabilities"),
            std::string::npos);
  EXPECT_NE(refused({{"top_p", 3}}).find("'top_p' must be a number from 0 to 1"),
            std::string::npos);
  EXPECT_NE(refused({{"stream", true}}).find("a stream needs ModelStreamInfer"), std::string::npos);
  EXPECT_NE(refused({{"use_beam_search", true}}).find("use_beam_search"), std::string::npos);
  EXPECT_TRUE(server.service->requests().empty());
  TestJson request = text_request("abc");
  request["parameters"]["priority"] = 1;
  EXPECT_NE(server.refusal(kInfer, request.dump()).find("'priority' is not supported"),
            std::string::npos);
  request = text_request("abc");
  request["inputs"][1]["data"] = {"[1]"};
  EXPECT_EQ(
      server.refusal(kInfer, request.dump()),
      "sampling_parameters cannot be used: this is no JSON object: expected {...}, got array");
}

TEST(Infer, AsksTheClientToComeBackIfTheQueueIsFull) {
  const KServeServer server({.most_requests = 0});
  const auto client = server.call("POST", kInfer, text_request("abc").dump());
  EXPECT_EQ(client->status(), 429);
  EXPECT_EQ(client->header("Retry-After"), "2");
  EXPECT_NE(client->json()["error"].get<std::string>().find("busy"), std::string::npos);
}

TEST(Infer, ReportsThatTheModelFailed) {
  const KServeServer server({.fails_at = 2});
  EXPECT_EQ(server.refusal(kInfer, text_request("abc").dump(), 500), "the model failed");
}

TEST(Infer, EndsTheSequenceOfAClientThatLeaves) {
  const KServeServer server({.token_time = std::chrono::milliseconds(20)});
  const auto client = server.start("POST", kInfer, text_request("abc", 100).dump());
  client->leave();
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 1);
}

}  // namespace
}  // namespace strata
