// The fake service repeats the prompt, which is the conversation as the template wrote it.
#include <gtest/gtest.h>

#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

const char* const kChatPath = "/v1/chat/completions";

TestJson conversation(TestJson more = TestJson::object()) {
  TestJson request = {{"model", "m"},
                      {"messages", {{{"role", "user"}, {"content", "hi"}}}},
                      {"max_tokens", 4},
                      {"temperature", 0}};
  if (!more.is_null()) request.update(more);
  return request;
}

std::string prompt_of(const TestJson& more) {
  const TestServer server;
  server.chat(conversation(more));
  const auto tokens = server.service->requests().at(0).prompt;
  return std::string(tokens.begin(), tokens.end());
}

TEST(Chat, AnswerHasShapeOfOpenAi) {
  const TestServer server;
  EXPECT_EQ(
      without_ids(server.chat(conversation())).dump(),
      R"({"id":"chatcmpl","object":"chat.completion","created":1,"model":"m","choices":[)"
      R"({"index":0,"message":{"role":"assistant","content":"<use","refusal":null},)"
      R"("logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":19,)"
      R"("completion_tokens":4,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":1}},)"
      R"("system_fingerprint":"step-00000007"})");
}

TEST(Chat, StreamBeginsWithTheRole) {
  const TestServer server;
  const auto chunks = server.stream(kChatPath, conversation({{"max_tokens", 2}}));
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(without_ids(chunks[0]).dump(),
            R"({"id":"chatcmpl","object":"chat.completion.chunk","created":1,"model":"m",)"
            R"("choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null}]})");
  EXPECT_EQ(chunks[1]["choices"].dump(),
            R"([{"index":0,"delta":{"content":"<"},"logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(chunks[2]["choices"].dump(),
            R"([{"index":0,"delta":{"content":"u"},"logprobs":null,"finish_reason":"length"}])");
}

TEST(Chat, StreamEndsWithAnEmptyDeltaAfterAnEndToken) {
  const TestServer server({.script = {'y', '\n'}});
  const auto chunks = server.stream(kChatPath, conversation());
  ASSERT_EQ(chunks.size(), 3u);
  EXPECT_EQ(chunks[2]["choices"].dump(),
            R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}])");
}

TEST(Chat, EveryStreamedChoiceHasItsRole) {
  const TestServer server;
  int roles = 0;
  for (const auto& chunk : server.stream(kChatPath, conversation({{"n", 3}})))
    roles += chunk["choices"][0]["delta"].contains("role") ? 1 : 0;
  EXPECT_EQ(roles, 3);
}

TEST(Chat, TemplateWritesThePrompt) {
  EXPECT_EQ(prompt_of({}), "<user>hi<assistant>");
  EXPECT_EQ(prompt_of({{"messages",
                        {{{"role", "system"}, {"content", "s"}},
                         {{"role", "user"}, {"content", "q"}},
                         {{"role", "assistant"}, {"content", nullptr}}}}}),
            "<system>s<user>q<assistant><assistant>");
  EXPECT_EQ(
      prompt_of({{"messages",
                  {{{"role", "user"},
                    {"content",
                     {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}}}}}),
      "<user>a\nb<assistant>");
  EXPECT_EQ(prompt_of({{"add_generation_prompt", false}}), "<user>hi");
  EXPECT_EQ(prompt_of({{"chat_template_kwargs", {{"shout", true}}}}), "<user>hi<assistant>!");
}

TEST(Chat, LengthIsEitherFieldOrTheContext) {
  const TestServer server;
  const auto length = [&](const TestJson& more) {
    TestJson request = conversation(more);
    return server.chat(request)["usage"]["completion_tokens"].get<int>();
  };
  EXPECT_EQ(length({}), 4);
  EXPECT_EQ(length({{"max_tokens", nullptr}, {"max_completion_tokens", 7}}), 7);
  EXPECT_EQ(length({{"max_completion_tokens", 2}}), 2);
  EXPECT_EQ(length({{"max_tokens", nullptr}}), 128 - 19);
}

TEST(Chat, ProbabilitiesHaveShapeOfOpenAi) {
  const TestServer server({.script = {195, 169}});
  const auto answer =
      server.chat(conversation({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 1}}));
  EXPECT_EQ(answer["choices"][0]["logprobs"].dump(),
            R"({"content":[{"token":"bytes:\\xc3","logprob":-1.0,"bytes":[195],"top_logprobs":[)"
            R"({"token":"bytes:\\xc3","logprob":-1.0,"bytes":[195]},)"
            R"({"token":"bytes:\\xc4","logprob":-1.5,"bytes":[196]}]}],"refusal":null})");
  const auto alone = server.chat(conversation({{"logprobs", true}, {"max_tokens", 1}}));
  EXPECT_EQ(alone["choices"][0]["logprobs"]["content"][0]["top_logprobs"], TestJson::array());
}

TEST(Chat, RefusalsNameTheField) {
  const TestServer server;
  const auto field = [&](const TestJson& more) {
    return server.refusal(kChatPath, conversation(more))["param"].get<std::string>();
  };
  const auto message = [&](const TestJson& message) {
    return field({{"messages", TestJson::array({message})}});
  };
  EXPECT_EQ(field({{"messages", nullptr}}), "messages");
  EXPECT_EQ(field({{"messages", TestJson::array()}}), "messages");
  EXPECT_EQ(message("hi"), "messages[0]");
  EXPECT_EQ(message({{"content", "x"}}), "messages[0].role");
  EXPECT_EQ(message({{"role", "user"}}), "messages[0].content");
  EXPECT_EQ(message({{"role", "user"}, {"content", 3}}), "messages[0].content");
  EXPECT_EQ(message({{"role", "user"}, {"content", {{{"type", "image_url"}}}}}),
            "messages[0].content");
  EXPECT_EQ(message({{"role", "assistant"}, {"content", "x"}, {"tool_calls", {{{"id", "1"}}}}}),
            "messages[0].tool_calls");
  EXPECT_EQ(field({{"top_logprobs", 2}}), "top_logprobs");
  EXPECT_EQ(server.refusal(kChatPath, conversation({{"top_logprobs", 2}}))["message"],
            "'top_logprobs' needs 'logprobs': true");
  EXPECT_EQ(field({{"n", 65}}), "n");  // more than may wait
  EXPECT_EQ(field({{"max_tokens", 0}}), "max_tokens");
  EXPECT_EQ(field({{"tools", {{{"type", "function"}}}}}), "tools");
  EXPECT_EQ(field({{"modalities", {"text", "audio"}}}), "modalities");
  EXPECT_EQ(field({{"response_format", {{"type", "xml"}}}}), "response_format.type");
  const auto error =
      server.refusal(kChatPath, conversation({{"messages", {{{"role", "bad"}, {"content", ""}}}}}));
  EXPECT_NE(error["message"].get<std::string>().find("no such role"), std::string::npos);
}

TEST(Chat, ModelWithoutATemplateRefusesConversations) {
  TestServer server;
  OpenAiModel model = server.model("m");
  model.chat.reset();
  server.routes = openai_routes({.models = {model}});
  EXPECT_EQ(server.refusal(kChatPath, conversation())["code"], "no_chat_template");
}

}  // namespace
}  // namespace strata
