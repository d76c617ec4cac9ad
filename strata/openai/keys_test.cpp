#include "strata/openai/keys.h"

#include <gtest/gtest.h>

#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/openai/api_error.h"
#include "strata/openai/fake_client_test.h"

namespace strata {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<ApiKey> key_of(KeyOptions options) {
  return std::make_shared<ApiKey>(std::move(options), 1);
}

// 0: admitted.
std::int64_t retry_after(ApiKey& key, std::int64_t tokens, ApiKey::Clock::time_point now,
                         std::vector<std::shared_ptr<KeyUse>>* uses = nullptr) {
  try {
    auto use = key.use(tokens, now);
    if (uses != nullptr) uses->push_back(std::move(use));
    return 0;
  } catch (const ApiError& error) {
    EXPECT_EQ(error.parts().status, 429);
    return error.parts().retry_after.count();
  }
}

std::shared_ptr<const Keys> two_keys(KeyOptions first = {}) {
  first.name = "first", first.key = "sk-1";
  return std::make_shared<const Keys>(
      std::vector<KeyOptions>{first, {.name = "second", .key = "sk-2", .models = {"other"}}});
}

HttpFields bearer(const std::string& key) { return {{"Authorization", "Bearer " + key}}; }

const char* const kBody = R"({"prompt": "ab", "max_tokens": 3})";

TEST(Keys, RequestsAMinuteRefill) {
  const auto key = key_of({.requests_per_minute = 2});
  const auto start = ApiKey::Clock::now();
  EXPECT_EQ(retry_after(*key, 0, start), 0);
  EXPECT_EQ(retry_after(*key, 0, start), 0);
  EXPECT_EQ(retry_after(*key, 0, start), 30'000);
  EXPECT_EQ(retry_after(*key, 0, start + 20s), 10'000);
  EXPECT_EQ(retry_after(*key, 0, start + 30s), 0);
  EXPECT_EQ(retry_after(*key, 0, start + 1h), 0);
  EXPECT_EQ(retry_after(*key, 0, start + 1h), 0);
  EXPECT_EQ(retry_after(*key, 0, start + 1h), 30'000);  // an hour saves no more than a minute
}

TEST(Keys, UnusedTokensAreReturned) {
  const auto key = key_of({.tokens_per_minute = 60});
  const auto start = ApiKey::Clock::now();
  std::vector<std::shared_ptr<KeyUse>> uses;
  EXPECT_EQ(retry_after(*key, 40, start, &uses), 0);
  EXPECT_EQ(retry_after(*key, 40, start), 20'000);
  uses[0]->settle(10);
  EXPECT_EQ(retry_after(*key, 50, start), 0);
}

TEST(Keys, UseThatIsNotSettledReturnsAllItsTokens) {
  const auto key = key_of({.tokens_per_minute = 60});
  const auto start = ApiKey::Clock::now();
  EXPECT_EQ(retry_after(*key, 60, start), 0);  // the use ends at once
  std::vector<std::shared_ptr<KeyUse>> uses;
  EXPECT_EQ(retry_after(*key, 60, start, &uses), 0);
  uses[0]->settle(60);
  EXPECT_EQ(retry_after(*key, 60, start), 60'000);
}

TEST(Keys, SubmissionThatFailsReturnsTokensAndEndsItsSequences) {
  const TestServer server(
      {.context = 1000, .token_time = std::chrono::milliseconds(1), .throws_at = 2},
      two_keys({.tokens_per_minute = 3000}));
  const std::string body = R"({"prompt": "ab", "max_tokens": 900, "n": 3})";
  const auto client = server.call("POST", "/v1/completions", body, bearer("sk-1"));
  EXPECT_EQ(client->status(), 500);
  EXPECT_EQ(client->json()["error"]["type"], "server_error");
  EXPECT_EQ(client->header("x-ratelimit-remaining-tokens"), "3000");
  EXPECT_EQ(server.service->cancels(), 2);
  server.service->wait_until_idle();
}

TEST(Keys, RequestLargerThanTheBudgetNeedsAFullOne) {
  const auto key = key_of({.tokens_per_minute = 60});
  const auto start = ApiKey::Clock::now();
  std::vector<std::shared_ptr<KeyUse>> uses;
  EXPECT_EQ(retry_after(*key, 90, start, &uses), 0);
  EXPECT_EQ(retry_after(*key, 1, start), 31'000);
}

TEST(Keys, ConcurrencyCountsRequestsThatRun) {
  const auto key = key_of({.concurrency = 1});
  const auto start = ApiKey::Clock::now();
  std::vector<std::shared_ptr<KeyUse>> uses;
  EXPECT_EQ(retry_after(*key, 0, start, &uses), 0);
  EXPECT_EQ(retry_after(*key, 0, start), 1'000);
  uses.clear();
  EXPECT_EQ(retry_after(*key, 0, start), 0);
}

TEST(Keys, RouteNeedsAKnownKey) {
  const TestServer server({}, two_keys());
  for (const HttpFields& headers : {HttpFields{}, bearer(""), bearer("sk-3"), bearer("sk-12"),
                                    HttpFields{{"Authorization", "sk-1"}}})
    for (const char* path :
         {"/v1/models", "/metrics", "/version", "/tokenizer_info", "/v1/models/m"}) {
      const auto client = server.call("GET", path, "", headers);
      EXPECT_EQ(client->status(), 401) << path;
      EXPECT_EQ(client->json()["error"]["code"], "invalid_api_key");
      EXPECT_EQ(client->header("WWW-Authenticate"), "Bearer");
    }
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/embeddings"})
    EXPECT_EQ(server.call("POST", path, kBody)->status(), 401) << path;
  for (const char* path : {"/health", "/ping", "/"})
    EXPECT_EQ(server.call("GET", path)->status(), 200) << path;
  EXPECT_EQ(server.call("POST", "/v1/completions", kBody, bearer("sk-1"))->status(), 200);
  EXPECT_EQ(server.call("GET", "/metrics", "", {{"authorization", "bearer sk-1"}})->status(), 200);
}

TEST(Keys, ModelsOfAKeyAreTheOnesThatItSees) {
  const TestServer server({}, two_keys());
  const auto client = server.call("POST", "/v1/completions", kBody, bearer("sk-2"));
  EXPECT_EQ(client->status(), 403);
  EXPECT_EQ(client->json()["error"]["code"], "model_not_allowed");
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("sk-2"))->json()["data"].size(), 0u);
  EXPECT_EQ(server.call("GET", "/v1/models", "", bearer("sk-1"))->json()["data"].size(), 1u);
}

TEST(Keys, ShareNoPagesOfKeysAndValues) {
  for (const char* name : {"", "one name"}) {
    const TestServer server({}, std::make_shared<const Keys>(std::vector<KeyOptions>{
                                    {.name = name, .key = "sk-a"}, {.name = name, .key = "sk-b"}}));
    for (const char* key : {"sk-a", "sk-b", "sk-a"})
      EXPECT_EQ(server.call("POST", "/v1/completions", kBody, bearer(key))->status(), 200);
    const std::vector<SequenceRequest> sent = server.service->requests();
    ASSERT_EQ(sent.size(), 3U);
    EXPECT_NE(sent[0].scope, sent[1].scope);
    EXPECT_EQ(sent[0].scope, sent[2].scope);
  }
}

TEST(Keys, LimitsAreInHeadersAndMeanStatus429) {
  const TestServer server({}, two_keys({.requests_per_minute = 2, .tokens_per_minute = 100}));
  const auto first = server.call("POST", "/v1/completions", kBody, bearer("sk-1"));
  EXPECT_EQ(first->status(), 200);
  EXPECT_EQ(first->header("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first->header("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(first->header("x-ratelimit-remaining-tokens"), "95");
  EXPECT_EQ(server.call("POST", "/tokenize", kBody, bearer("sk-1"))->status(), 200);
  const auto third = server.call("POST", "/v1/completions", kBody, bearer("sk-1"));
  EXPECT_EQ(third->status(), 429);
  EXPECT_EQ(third->json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_NE(third->header("Retry-After"), "");
}

TEST(Keys, EndedAnswersReturnTheirTokensAndTheirPlace) {
  const TestServer server({}, two_keys({.tokens_per_minute = 100, .concurrency = 1}));
  for (int i = 0; i < 5; ++i) {  // 92 tokens are reserved each time, and 4 used
    const auto client =
        server.call("POST", "/v1/completions",
                    R"({"prompt": "ab\n", "max_tokens": 75, "temperature": 0})", bearer("sk-1"));
    EXPECT_EQ(client->status(), 200) << client->body();
  }
}

TEST(Keys, FileIsYamlOrJson) {
  const ScratchFolder folder;
  const auto read = [&](const std::string& text) {
    const std::string path = folder.path() + "/keys";
    std::ofstream(path) << text;
    return Keys::read(path);
  };
  EXPECT_EQ(read("keys:\n  - {name: a, key: sk-1, concurrency: 3, models: [x]}\n")
                .find("Bearer sk-1")
                ->options()
                .concurrency,
            3);
  EXPECT_EQ(read(R"({"keys": [{"name": "b", "key": "sk-2"}]})").find("Bearer sk-2")->options().name,
            "b");
  for (const char* bad : {"keys: []", "keys: [{name: a}]", "{}", "keys: [{key: a, limit: 3}]",
                          "keys: [{key: a}, {key: a}]", "keys: [{key: a, concurrency: -1}]", "["})
    EXPECT_THROW(read(bad), UserError) << bad;
  EXPECT_THROW(Keys::read(folder.path() + "/none"), UserError);
}

}  // namespace
}  // namespace strata
