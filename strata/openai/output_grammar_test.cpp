// Where the fake service wants a token that may not follow, it takes the first one that may. The
// end-of-sequence token is the line end, byte 10, which is the first of most sets.
#include "strata/openai/output_grammar.h"

#include <gtest/gtest.h>

#include <set>

#include "strata/grammar/regex.h"
#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

TestJson request(const TestJson& more) {
  TestJson request = {{"prompt", "xyz"}, {"max_tokens", 100}, {"temperature", 0}};
  request.update(more);
  return request;
}

// Text and finish reason of a completion.
std::pair<std::string, std::string> answer(const TestServer& server, const TestJson& more) {
  const TestJson choice = server.completion(request(more))["choices"][0];
  return {choice["text"].get<std::string>(), choice["finish_reason"].get<std::string>()};
}
using Answer = std::pair<std::string, std::string>;

std::vector<std::int64_t> script(std::string_view text) { return {text.begin(), text.end()}; }

const TestJson kSchema = {{"type", "object"},
                          {"properties", {{"b", {{"const", 1}}}, {"a", {{"type", "integer"}}}}},
                          {"required", {"b", "a"}}};

TEST(OutputGrammar, EveryFieldBindsTheAnswer) {
  const TestServer server;
  const TestJson fields[] = {
      {{"structured_outputs", {{"regex", "[0-9]{3}"}}}},
      {{"structured_outputs", {{"grammar", "root ::= [0-9]{3}"}}}},
      {{"structured_outputs", {{"choice", {"000", "001"}}}}},
      {{"structured_outputs", {{"json", {{"const", 0}}}}}},
      {{"structured_outputs", {{"json", "{\"const\": 0}"}}}},
      {{"guided_regex", "0+"}},
      {{"guided_grammar", "root ::= \"0\""}},
      {{"guided_choice", TestJson::array({"0"})}},
      {{"guided_json", {{"type", "integer"}}}},
      {{"grammar", "root ::= \"0\""}},
      {{"json_schema", {{"enum", {0, 1}}}}},
      {{"response_format",
        {{"type", "json_schema"},
         {"json_schema", {{"name", "n"}, {"schema", {{"type", "integer"}, {"minimum", 0}}}}}}}}};
  for (const TestJson& field : fields) {
    const auto [text, reason] = answer(server, field);
    EXPECT_EQ(text.find_first_not_of("-01"), std::string::npos) << field << text;
    EXPECT_FALSE(text.empty()) << field;
    EXPECT_EQ(reason, "stop") << field;
  }
  EXPECT_EQ(answer(server, fields[0]).first, "000");
  const TestServer objects({.script = script("}{}}")});
  for (const TestJson& field : {TestJson{{"response_format", {{"type", "json_object"}}}},
                                TestJson{{"structured_outputs", {{"json_object", true}}}}})
    EXPECT_EQ(answer(objects, field), (Answer{"{ }", "stop"})) << field;
}

TEST(OutputGrammar, MembersHaveTheOrderOfTheBody) {
  const TestServer server;
  const TestJson format = {
      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", kSchema}}}}}};
  EXPECT_EQ(answer(server, format), (Answer{R"({ "b": 1, "a": -1 })", "stop"}));
  const TestJson chat = server.chat({{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                                     {"response_format", format["response_format"]}});
  EXPECT_EQ(chat["choices"][0]["message"]["content"], R"({ "b": 1, "a": -1 })");
}

TEST(OutputGrammar, TokensThatMatchAreTheModelsChoice) {
  const TestServer server({.script = script(R"({"b": 1,"a":27})")});
  EXPECT_EQ(answer(server, {{"guided_json", kSchema}}), (Answer{R"({"b": 1,"a":27})", "stop"}));
}

TEST(OutputGrammar, AllAnswersAreBound) {
  const TestServer server;
  const TestJson all =
      server.completion(request({{"n", 3},
                                 {"temperature", 1},
                                 {"seed", 1},
                                 {"structured_outputs", {{"regex", "[x-z]{2}"}}}}));
  std::set<std::string> texts;
  for (const TestJson& choice : all["choices"]) texts.insert(choice["text"].get<std::string>());
  EXPECT_EQ(texts, (std::set<std::string>{"yz", "zx", "xy"}));
}

TEST(OutputGrammar, MaskHasTheTokensOfTheGrammarAndTheEnd) {
  const TestServer server;
  answer(server, {{"structured_outputs", {{"regex", "[a-c]+"}}}});
  const auto allowed = server.service->requests().at(0).allowed;
  const auto bits = [&](const std::vector<std::int64_t>& tokens) {
    std::string text;
    const auto mask = allowed(tokens);
    EXPECT_EQ(mask.size(), 4u);
    for (std::int64_t i = 0; i < 256; ++i)
      if ((mask[i / 64] >> (i % 64) & 1) != 0) text += static_cast<char>(i);
    return text;
  };
  EXPECT_EQ(bits({}), "abc");
  EXPECT_EQ(bits({'a', 'b'}), "\nabc");
  EXPECT_EQ(bits({'a', 'b', 'c'}), "\nabc");
}

TEST(OutputGrammar, EndWaitsForTheMatchAndForTheLength) {
  const TestServer server;
  const TestJson field = {{"structured_outputs", {{"regex", "a{1,3}"}}}};
  const auto with = [&](TestJson more) {
    more.update(field);
    return answer(server, more);
  };
  EXPECT_EQ(with({}), (Answer{"a", "stop"}));
  EXPECT_EQ(with({{"min_tokens", 2}}), (Answer{"aa", "stop"}));
  EXPECT_EQ(with({{"ignore_eos", true}}), (Answer{"aaa", "stop"}));
  EXPECT_EQ(with({{"min_tokens", 50}}), (Answer{"aaa", "stop"}));
  EXPECT_EQ(with({{"max_tokens", 2}, {"ignore_eos", true}}), (Answer{"aa", "length"}));
}

TEST(OutputGrammar, ModelWithoutEndTokenEndsWithTheGrammar) {
  TestServer server;
  OpenAiModel model = server.model("m");
  model.ends.clear();
  server.routes = openai_routes({.models = {model}});
  EXPECT_EQ(answer(server, {{"structured_outputs", {{"regex", "ab"}}}}), (Answer{"ab", "stop"}));
}

TEST(OutputGrammar, StopTokensFollowOnlyAMatch) {
  const TestServer server;
  EXPECT_EQ(answer(server, {{"structured_outputs", {{"regex", "a[+-]b"}}},
                            {"stop_token_ids", {'+'}},
                            {"ignore_eos", true}}),
            (Answer{"a-b", "stop"}));
}

TEST(OutputGrammar, TextThatTokensCannotSpellFails) {
  const TestServer server;  // the line end is no part of a text
  const TestJson body = request({{"structured_outputs", {{"regex", "a\nb"}}}});
  const std::string message =
      "no token of the model can continue the answer: expected a token that the grammar allows, "
      "got none";
  EXPECT_EQ(server.refusal("/v1/completions", body)["message"], message);
  EXPECT_EQ(server.stream("/v1/completions", body).back()["error"]["message"], message);
}

TEST(OutputGrammar, TextFormatAndMissingFieldsBindNothing) {
  const TestServer server;
  answer(server, {{"response_format", {{"type", "text"}}},
                  {"structured_outputs", nullptr},
                  {"guided_json", nullptr}});
  EXPECT_EQ(server.service->requests().at(0).allowed, nullptr);
}

TEST(OutputGrammar, RefusalsNameTheField) {
  const TestServer server;
  const std::pair<TestJson, const char*> cases[] = {
      {{{"response_format", "json"}}, "response_format"},
      {{{"response_format", {{"type", "xml"}}}}, "response_format.type"},
      {{{"response_format", TestJson::object()}}, "response_format.type"},
      {{{"response_format", {{"type", "json_schema"}}}}, "response_format.json_schema"},
      {{{"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "x"}}}}}},
       "response_format.json_schema.schema"},
      {{{"response_format",
         {{"type", "json_schema"}, {"json_schema", {{"schema", {{"not", {{"type", "null"}}}}}}}}}},
       "response_format.json_schema.schema"},
      {{{"structured_outputs", {{"regex", "(?=a)"}}}}, "structured_outputs.regex"},
      {{{"structured_outputs", {{"regex", 3}}}}, "structured_outputs.regex"},
      {{{"structured_outputs", {{"choice", TestJson::array()}}}}, "structured_outputs.choice"},
      {{{"structured_outputs", {{"choice", TestJson::array({1})}}}}, "structured_outputs.choice"},
      {{{"structured_outputs", {{"grammar", "rule ::= x"}}}}, "structured_outputs.grammar"},
      {{{"structured_outputs", {{"structural_tag", "{}"}}}}, "structured_outputs.structural_tag"},
      {{{"structured_outputs", {{"json", "{"}}}}, "structured_outputs.json"},
      {{{"guided_json", 3}}, "guided_json"},
      {{{"guided_regex", "a"}, {"guided_choice", TestJson::array({"a"})}}, "guided_choice"},
      {{{"guided_whitespace_pattern", "x"}}, "guided_whitespace_pattern"},
      {{{"tools", {{{"type", "function"}}}}}, "tools"}};
  for (const auto& [field, param] : cases)
    EXPECT_EQ(server.refusal("/v1/completions", request(field))["param"], param) << field;
  const TestJson error = server.refusal(
      "/v1/completions", request({{"guided_json", {{"properties", {{"a", {{"not", true}}}}}}}}));
  EXPECT_EQ(
      error["message"],
      "'guided_json' cannot be used: #/properties/a/not: the keyword is not supported: expected "
      "a schema without it, got 'not'");
  EXPECT_EQ(error["code"], "invalid_grammar");
}

TEST(OutputGrammar, RequestsWithTheSameGrammarShareIt) {
  ModelGrammars grammars;
  const auto tokenizer = make_tokenizer("bytes");
  int compiled = 0;
  const auto find = [&](const std::string& pattern) {
    return grammars.find(pattern, *tokenizer, 256, [&] {
      ++compiled;
      Grammar grammar;
      return Automaton::compile(grammar, read_regex(grammar, pattern));
    });
  };
  const auto first = find("a");
  EXPECT_EQ(find("a"), first);
  EXPECT_NE(find("b"), first);
  EXPECT_EQ(compiled, 2);
  for (std::size_t i = 0; i < ModelGrammars::kKept; ++i) find("x" + std::to_string(i));
  EXPECT_NE(find("a"), first);
  const std::string large(ModelGrammars::kMaxKeyBytes + 1, 'a');
  EXPECT_NE(find(large), find(large));
}

TEST(OutputGrammar, RequestsThatCompileTheSameGrammarAtOnceShareIt) {
  ModelGrammars grammars;
  const auto tokenizer = make_tokenizer("bytes");
  const auto compile = [] {
    Grammar grammar;
    return Automaton::compile(grammar, read_regex(grammar, "a"));
  };
  std::shared_ptr<TokenGrammar> inner;
  const auto outer = grammars.find("a", *tokenizer, 256, [&] {
    inner = grammars.find("a", *tokenizer, 256, compile);
    return compile();
  });
  EXPECT_EQ(outer, inner);
}

}  // namespace
}  // namespace strata
