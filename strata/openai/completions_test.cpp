// The fake service repeats the prompt, a byte a token; a line end ends a text.
#include <gtest/gtest.h>

#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

const char* const kPath = "/v1/completions";

TestJson request(TestJson more = TestJson::object()) {
  TestJson request = {{"model", "m"}, {"prompt", "abc"}, {"max_tokens", 4}, {"temperature", 0}};
  if (!more.is_null()) request.update(more);
  return request;
}

SequenceRequest submitted(const TestJson& more) {
  const TestServer server;
  server.completion(request(more));
  return server.service->requests().at(0);
}

TEST(Completions, AnswerHasShapeOfOpenAi) {
  const TestServer server;
  EXPECT_EQ(
      without_ids(server.completion(request())).dump(),
      R"({"id":"cmpl","object":"text_completion","created":1,"model":"m","choices":[)"
      R"({"index":0,"text":"abca","logprobs":null,"finish_reason":"length"}],)"
      R"("usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,)"
      R"("prompt_tokens_details":{"cached_tokens":1}},"system_fingerprint":"step-00000007"})");
}

TEST(Completions, StreamHasOneChunkATokenAndOneId) {
  const TestServer server;
  const auto chunks = server.stream(kPath, request({{"max_tokens", 2}}));
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(without_ids(chunks[0]).dump(),
            R"({"id":"cmpl","object":"text_completion","created":1,"model":"m","choices":[)"
            R"({"index":0,"text":"a","logprobs":null,"finish_reason":null}],)"
            R"("system_fingerprint":"step-00000007"})");
  EXPECT_EQ(without_ids(chunks[1])["choices"].dump(),
            R"([{"index":0,"text":"b","logprobs":null,"finish_reason":"length"}])");
  EXPECT_EQ(chunks[0]["id"], chunks[1]["id"]);
}

TEST(Completions, StreamEndsWithUsageWithoutChoices) {
  const TestServer server;
  const auto chunks = server.stream(
      kPath, request({{"max_tokens", 2}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_TRUE(chunks[0].at("usage").is_null());
  EXPECT_EQ(chunks[2]["choices"], TestJson::array());
  EXPECT_EQ(chunks[2]["usage"]["completion_tokens"], 2);
}

TEST(Completions, EndTokenEndsTextWithoutBeingShown) {
  const TestServer server;
  const auto answer = server.completion(request({{"prompt", "ab\n"}, {"max_tokens", 9}}));
  EXPECT_EQ(answer["choices"][0]["text"], "ab");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  const auto chunks = server.stream(kPath, request({{"prompt", "ab\n"}, {"max_tokens", 9}}));
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[2]["choices"][0]["text"], "");
  EXPECT_EQ(chunks[2]["choices"][0]["finish_reason"], "stop");
}

TEST(Completions, PromptMayBeTextsOrTokensOrListsOfEither) {
  const TestServer server;
  const auto texts = [&](const TestJson& prompt) {
    std::string texts;
    const auto answer = server.completion(request({{"prompt", prompt}}));
    for (const auto& choice : answer["choices"]) texts += choice["text"].get<std::string>() + "|";
    return texts;
  };
  EXPECT_EQ(texts("xy"), "xyxy|");
  EXPECT_EQ(texts({"xy", "z"}), "xyxy|zzzz|");
  EXPECT_EQ(texts({120, 121}), "xyxy|");
  EXPECT_EQ(texts({{120, 121}, {122}}), "xyxy|zzzz|");
}

TEST(Completions, FieldsReachTheService) {
  EXPECT_EQ(submitted({{"max_tokens", 7}}).max_tokens, 7);
  EXPECT_EQ(submitted({{"min_tokens", 2}}).min_tokens, 2);
  EXPECT_EQ(submitted({{"temperature", 0.5}}).sampling.temperature, 0.5);
  EXPECT_EQ(submitted({{"top_p", 0.25}}).sampling.top_p, 0.25);
  EXPECT_EQ(submitted({{"top_k", 9}}).sampling.top_k, 9);
  EXPECT_EQ(submitted({{"top_k", -1}}).sampling.top_k, 0);
  EXPECT_EQ(submitted({{"min_p", 0.125}}).sampling.min_p, 0.125);
  EXPECT_EQ(submitted({{"presence_penalty", 1.5}}).sampling.presence_penalty, 1.5);
  EXPECT_EQ(submitted({{"frequency_penalty", -1.5}}).sampling.frequency_penalty, -1.5);
  EXPECT_EQ(submitted({{"repetition_penalty", 1.25}}).sampling.repetition_penalty, 1.25);
  EXPECT_EQ(submitted({{"seed", -1}}).sampling.seed, UINT64_MAX);
  EXPECT_EQ(submitted({{"logprobs", 3}}).likeliest, 3);
  EXPECT_EQ(submitted({{"logprobs", 0}}).likeliest, 0);
  EXPECT_EQ(submitted({{"best_of", 2}}).likeliest, 0);  // their probabilities are compared
  EXPECT_EQ(submitted({{"n", 2}}).likeliest, std::nullopt);
  EXPECT_EQ(submitted({{"stop_token_ids", {99}}}).ends, (std::vector<std::int64_t>{99, '\n'}));
  EXPECT_EQ(submitted({{"ignore_eos", true}}).ends, std::vector<std::int64_t>{});
  EXPECT_EQ(submitted({{"logit_bias", {{"97", -100}, {"98", 1.5}}}}).sampling.biases,
            (std::map<std::int64_t, double>{{97, -100}, {98, 1.5}}));
}

TEST(Completions, DefaultsAreThoseOfOpenAi) {
  const TestServer server;
  server.completion({{"prompt", "abc"}});
  const SequenceRequest sent = server.service->requests().at(0);
  EXPECT_EQ(sent.max_tokens, 16);
  EXPECT_EQ(sent.sampling.temperature, 1);
  EXPECT_EQ(sent.sampling.top_p, 1);
  EXPECT_FALSE(sent.likeliest.has_value());
  EXPECT_FALSE(sent.score_prompt);
  EXPECT_EQ(sent.ends, std::vector<std::int64_t>{'\n'});
}

TEST(Completions, RandomSeedsDiffer) {
  EXPECT_NE(submitted({}).sampling.seed, submitted({}).sampling.seed);
}

TEST(Completions, ChoicesDrawWithSeedsInARow) {
  const TestServer server;
  const auto answer = server.completion(
      request({{"n", 3}, {"seed", 5}, {"temperature", 1}, {"prompt", {"abc", "xyz"}}}));
  ASSERT_EQ(answer["choices"].size(), 6u);
  EXPECT_EQ(answer["choices"][0]["text"], "cabc");  // the fake shifts its answer by the seed
  EXPECT_EQ(answer["choices"][1]["text"], "abca");
  EXPECT_EQ(answer["choices"][4]["text"], "xyzx");
  EXPECT_EQ(answer["choices"][5]["index"], 5);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 24);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST(Completions, BestOfSendsTheMostLikelyCandidates) {
  const TestServer server;
  const TestJson more = {{"seed", 0}, {"temperature", 1}, {"max_tokens", 1}, {"prompt", "afc"}};
  // One token each at position 3: a, f, c have fake scores of (97 + 3) % 8 = 4, 1, 6 steps.
  TestJson best = request(more);
  best["best_of"] = 3;
  EXPECT_EQ(server.text(best), "f");
  best["n"] = 2;
  const auto answer = server.completion(best);
  EXPECT_EQ(answer["choices"][0]["text"].get<std::string>() +
                answer["choices"][1]["text"].get<std::string>(),
            "fa");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 3);
  best["stream"] = true;
  EXPECT_EQ(server.refusal(kPath, best)["param"], "best_of");
}

TEST(Completions, StopStringsAreNeverShown) {
  const TestServer server({.context = 1'000'000, .token_time = std::chrono::milliseconds(1)});
  for (const char* stop : {"ca", "cab", "c"}) {
    const auto answer = server.completion(request({{"stop", stop}, {"max_tokens", 900'000}}));
    EXPECT_EQ(answer["choices"][0]["text"], "ab") << stop;
    EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
    std::string streamed;
    for (const auto& chunk :
         server.stream(kPath, request({{"stop", {"zzz", stop}}, {"max_tokens", 900'000}})))
      streamed += chunk["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(streamed, "ab") << stop;
  }
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 6);
  EXPECT_EQ(server.text(request({{"stop", {"1", "2", "3", "4", "5", "cX"}}})), "abca");
}

TEST(Completions, TextHeldBackForAStopStringAppearsAtTheEnd) {
  const TestServer server;
  const auto chunks = server.stream(kPath, request({{"stop", "bcaX"}, {"max_tokens", 4}}));
  ASSERT_EQ(chunks.size(), 4u);
  EXPECT_EQ(chunks[3]["choices"][0]["text"], "a");
  EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "length");
}

TEST(Completions, CharactersAreNeverSplit) {
  const TestServer server;
  std::string streamed;
  const auto chunks =
      server.stream(kPath, request({{"prompt", "\xF0\x9F\x98\x80\xC3\xA9"}, {"max_tokens", 7}}));
  ASSERT_EQ(chunks.size(), 7u);
  std::vector<std::string> texts;
  for (const auto& chunk : chunks) texts.push_back(chunk["choices"][0]["text"]);
  EXPECT_EQ(texts, (std::vector<std::string>{"", "", "", "\xF0\x9F\x98\x80", "", "\xC3\xA9",
                                             "\xEF\xBF\xBD"}));
}

TEST(Completions, EchoRepeatsThePrompt) {
  const TestServer server;
  EXPECT_EQ(server.text(request({{"echo", true}})), "abcabca");
  EXPECT_EQ(server.text(request({{"echo", true}, {"max_tokens", 0}})), "abc");
  const auto chunks = server.stream(kPath, request({{"echo", true}, {"max_tokens", 1}}));
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_EQ(chunks[0]["choices"][0]["text"], "abc");
  EXPECT_EQ(chunks[1]["choices"][0]["text"], "a");
}

TEST(Completions, ProbabilitiesHaveShapeOfOpenAi) {
  const TestServer server;
  const auto answer = server.completion(request({{"logprobs", 2}, {"max_tokens", 2}}));
  EXPECT_EQ(answer["choices"][0]["logprobs"].dump(),
            R"({"tokens":["a","b"],"token_logprobs":[-0.75,-1.0],)"
            R"("top_logprobs":[{"a":-0.75,"b":-1.25},{"b":-1.0,"c":-1.5}],"text_offset":[0,1]})");
  const auto alone = server.completion(request({{"logprobs", 0}, {"max_tokens", 1}}));
  EXPECT_EQ(alone["choices"][0]["logprobs"]["top_logprobs"].dump(), R"([{"a":-0.75}])");
}

TEST(Completions, StreamedProbabilitiesJoinToThoseOfTheWholeAnswer) {
  const TestServer server;
  const TestJson more = {{"logprobs", 2}, {"max_tokens", 6}, {"stop", "cb"}, {"echo", true}};
  const auto whole = server.completion(request(more))["choices"][0]["logprobs"];
  TestJson joined;
  for (const auto& chunk : server.stream(kPath, request(more)))
    for (const auto& [key, list] : chunk["choices"][0]["logprobs"].items())
      for (const auto& each : list) joined[key].push_back(each);
  EXPECT_EQ(joined.dump(), whole.dump());
  EXPECT_EQ(whole["text_offset"].dump(), "[0,1,2,3,4,5,6,7,8]");
}

TEST(Completions, ScoresOfPromptsAreThoseThatLmEvalReads) {
  const TestServer server;
  const auto answer = server.completion({{"model", "m"},
                                         {"prompt", {{104, 195, 169, 33}, {65, 66}}},
                                         {"max_tokens", 1},
                                         {"logprobs", 1},
                                         {"echo", true},
                                         {"temperature", 0},
                                         {"seed", 1234}});
  EXPECT_EQ(answer["choices"][0]["text"], "h\xC3\xA9!h");
  EXPECT_EQ(answer["choices"][0]["logprobs"].dump(),
            R"({"tokens":["h","bytes:\\xc3","bytes:\\xa9","!","h"],)"
            R"("token_logprobs":[null,-0.75,-0.625,-0.75,-0.75],)"
            R"("top_logprobs":[null,{"bytes:\\xc3":-0.75},{"bytes:\\xa9":-0.625},{"!":-0.75},)"
            R"({"h":-0.75}],"text_offset":[0,1,1,2,3]})");
  const auto& second = answer["choices"][1]["logprobs"];
  EXPECT_EQ(second["tokens"].dump(), R"(["A","B","A"])");
  EXPECT_EQ(second["token_logprobs"][2], fake_score('A', 2));
}

TEST(Completions, ScoredEndTokenIsReportedAfterAPrompt) {
  const TestServer server;
  const auto answer = server.completion(
      request({{"prompt", {{'\n', 'a'}}}, {"max_tokens", 1}, {"logprobs", 1}, {"echo", true}}));
  const auto& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "\na");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"].size(), 3u);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST(Completions, RefusalsNameTheField) {
  const TestServer server;
  const auto field = [&](const TestJson& more) {
    return server.refusal(kPath, request(more))["param"].get<std::string>();
  };
  EXPECT_EQ(field({{"prompt", nullptr}}), "prompt");
  EXPECT_EQ(field({{"prompt", ""}}), "prompt");
  EXPECT_EQ(field({{"prompt", {1, "a"}}}), "prompt");
  EXPECT_EQ(field({{"prompt", {256}}}), "prompt");
  EXPECT_EQ(field({{"prompt", {{1}, 2}}}), "prompt");
  EXPECT_EQ(field({{"prompt", TestJson::array()}}), "prompt");
  EXPECT_EQ(field({{"max_tokens", -1}}), "max_tokens");
  EXPECT_EQ(field({{"max_tokens", "4"}}), "max_tokens");
  EXPECT_EQ(field({{"max_tokens", 2.5}}), "max_tokens");
  EXPECT_EQ(field({{"temperature", -0.1}}), "temperature");
  EXPECT_EQ(field({{"temperature", true}}), "temperature");
  EXPECT_EQ(field({{"top_p", 1.5}}), "top_p");
  EXPECT_EQ(field({{"n", 0}}), "n");
  EXPECT_EQ(field({{"n", 3}, {"best_of", 2}}), "best_of");
  EXPECT_EQ(field({{"logprobs", 21}}), "logprobs");
  EXPECT_EQ(field({{"stop", ""}}), "stop");
  EXPECT_EQ(field({{"stop", {1}}}), "stop");
  EXPECT_EQ(field({{"logit_bias", {{"300", 1}}}}), "logit_bias");
  EXPECT_EQ(field({{"logit_bias", {{"1", 101}}}}), "logit_bias");
  EXPECT_EQ(field({{"seed", 1e300}}), "seed");
  EXPECT_EQ(field({{"min_tokens", 5}}), "min_tokens");
  EXPECT_EQ(field({{"stream_options", {{"include_usage", true}}}}), "stream_options");
  EXPECT_EQ(field({{"stream", true}, {"stream_options", 3}}), "stream_options");
  EXPECT_EQ(field({{"stream", true}, {"stream_options", {{"include_usage", 3}}}}),
            "stream_options.include_usage");
  EXPECT_EQ(field({{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}}),
            "stream_options.continuous_usage_stats");
  EXPECT_EQ(server.refusal(kPath, request({{"stream_options", TestJson::object()}}))["message"],
            "'stream_options' needs 'stream': true");
}

TEST(Completions, UnknownFieldsAreIgnoredAndUnsupportedOnesRefused) {
  const TestServer server;
  EXPECT_EQ(server.text(request({{"user", "me"}, {"service_tier", "auto"}, {"new_field", {1}}})),
            "abca");
  for (const char* field : {"tools", "suffix", "prompt_logprobs", "use_beam_search", "audio"})
    EXPECT_EQ(server.refusal(kPath, request({{field, {{"type", "x"}}}}))["param"], field);
  EXPECT_EQ(server.refusal(kPath, request({{"skip_special_tokens", false}}))["param"],
            "skip_special_tokens");
  for (const TestJson& neutral :
       {TestJson(nullptr), TestJson(""), TestJson(false), TestJson::array()})
    EXPECT_EQ(server.text(request({{"suffix", neutral}, {"tools", neutral}})), "abca");
  EXPECT_EQ(server.text(request({{"response_format", {{"type", "text"}}}})), "abca");
}

TEST(Completions, PromptBeyondTheContextIsRefused) {
  const TestServer server({.context = 8});
  const auto error = server.refusal(kPath, request({{"max_tokens", 6}}));
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(server.completion({{"prompt", "abc"}})["usage"]["completion_tokens"], 5);
  EXPECT_EQ(server.text(request({{"max_tokens", 5}})), "abcab");
}

TEST(Completions, BusyServiceMeansStatus429) {
  const TestServer server({.most_requests = 2, .token_time = std::chrono::milliseconds(20)});
  const auto client = server.call("POST", kPath, request({{"n", 3}, {"stream", true}}).dump());
  EXPECT_EQ(client->status(), 429);
  EXPECT_EQ(client->header("Retry-After"), "2");
  EXPECT_EQ(client->header("retry-after-ms"), "1500");
  EXPECT_EQ(client->json()["error"]["type"], "rate_limit_error");
  server.service->wait_until_idle();  // the two that were admitted are withdrawn
  EXPECT_EQ(server.service->cancels(), 2);
}

TEST(Completions, RequestOfMoreAnswersThanMayWaitIsRefused) {
  const TestServer server({.most_waiting = 4});
  const auto field = [&](const TestJson& more) {
    const TestJson error = server.refusal(kPath, request(more));
    EXPECT_NE(error["message"].get<std::string>().find("at most 4 may wait"), std::string::npos);
    return error["param"].get<std::string>();
  };
  EXPECT_EQ(field({{"n", 5}}), "n");
  EXPECT_EQ(field({{"n", 2}, {"best_of", 5}}), "best_of");
  EXPECT_EQ(field({{"prompt", {"a", "b", "c"}}, {"n", 2}}), "prompt");
  EXPECT_EQ(server.service->requests().size(), 0U);
  EXPECT_EQ(server.completion(request({{"prompt", {"a", "b"}}, {"n", 2}}))["choices"].size(), 4U);
}

TEST(Completions, FailureEndsAnswerWithAnErrorObject) {
  const TestServer server({.fails_at = 2});
  const auto error = server.refusal(kPath, request(), 500);
  EXPECT_EQ(error["message"], "the model failed");  // without the cause
  EXPECT_EQ(error["type"], "server_error");
  const auto chunks = server.stream(kPath, request());
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[1]["choices"][0]["text"], "b");
  EXPECT_EQ(chunks[2]["error"]["message"], "the model failed");
}

TEST(Completions, ClientThatLeavesEndsItsRequests) {
  const TestServer server({.context = 1'000'000, .token_time = std::chrono::milliseconds(1)});
  TestJson endless = request({{"max_tokens", 900'000}, {"n", 2}});
  const auto whole = server.start("POST", kPath, endless.dump());
  whole->leave();
  endless["stream"] = true;
  const auto stream = server.start("POST", kPath, endless.dump());
  stream->leave();
  server.start("POST", kPath, endless.dump(), {}, 3)->wait();  // a write fails
  server.service->wait_until_idle();
  EXPECT_EQ(server.service->cancels(), 6);
}

}  // namespace
}  // namespace strata
